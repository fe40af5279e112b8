"""The program's own source: which lines were run, which were not, and what stands around and beside the training loop."""
