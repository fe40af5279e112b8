"""Values that no kernel computed: those that are known beside the card, the side that a run takes for the others, and what the program decides by them."""
