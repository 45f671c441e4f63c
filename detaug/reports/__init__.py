"""What commands show and write: progress and files."""
