"""torch.compile and Triton: hooks step aside for what traces, and what is chosen by time is bounded."""
