"""What is run, and compared: the rows of the table."""
