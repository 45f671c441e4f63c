"""The rows of the front page, measured anew on this machine."""
