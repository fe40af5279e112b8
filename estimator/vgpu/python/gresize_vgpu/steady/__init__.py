"""Whether one training step takes what the step before it took, and which later batch may take more."""
