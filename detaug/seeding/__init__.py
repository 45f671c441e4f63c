"""Where randomness comes from: seeds, their children, and the generators that are seeded with them."""
