"""The objects that users hold: `DeterministicAugmenter` and `DataLoader`, and their state dicts."""
