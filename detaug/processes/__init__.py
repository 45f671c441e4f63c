"""Operating-system processes: their settings, threads and ends."""
