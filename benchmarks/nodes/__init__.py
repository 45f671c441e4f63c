"""How many CPU nodes a GPU needs."""
