"""What a GPU decides: equal trainings, what stands in their way, an epoch's time, and copies."""
