"""What a probe does with a program in the place of the virtual GPU's own training: a profile on the CPU, tensors without content."""
