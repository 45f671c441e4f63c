"""What the deterministic layers cost: each against PyTorch's own, forward and backward."""
