"""The parts that every transform is built from."""
