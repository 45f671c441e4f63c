"""Progress, rows and files of commands."""
