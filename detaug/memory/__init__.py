"""Anonymous shared memory, and the limits that are met with it."""
