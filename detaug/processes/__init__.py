"""Operating-system processes: their settings, threads, ends and whereabouts."""
