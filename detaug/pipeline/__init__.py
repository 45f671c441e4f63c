"""A batch as a pure function of (pipeline, seed, epoch, step)."""
