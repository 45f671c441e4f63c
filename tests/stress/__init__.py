"""What real machines do to a training, done to the engine for minutes: `python -m tests.stress`."""
