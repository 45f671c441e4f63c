"""What transforms are built from."""
