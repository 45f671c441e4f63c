"""How other people's training loops read an augmenter."""
