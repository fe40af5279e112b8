"""The optional parts of a bundle: the allocator's history, networks, operators."""
