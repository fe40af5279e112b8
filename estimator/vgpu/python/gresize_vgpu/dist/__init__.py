"""Several ranks: which are run, how they find each other, and how they end together."""
