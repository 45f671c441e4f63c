"""The tables and the picture of the pages, written from the kept results."""
