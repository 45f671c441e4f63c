"""Worker processes on this machine: the parent's side of them, and what runs in them."""
