"""What is changed around a pipeline, and making batches under that."""
