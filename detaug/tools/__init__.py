"""What the command line runs and shows: commands, benchmark, previews and pictures."""
