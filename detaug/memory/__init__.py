"""Anonymous shared memory, and the system's limits."""
