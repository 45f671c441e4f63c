"""How long an epoch takes with a simulated step, by the number of workers."""
