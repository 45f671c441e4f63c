"""What a user holds: `DeterministicAugmenter` and `DataLoader`, their arguments and state dicts."""
