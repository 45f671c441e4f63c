"""The contract seen from outside: what a user can rely on, tested through the public names only."""
