"""One run: what PyTorch does is told here, and it ends when enough was seen."""
