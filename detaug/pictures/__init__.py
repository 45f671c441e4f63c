"""Pictures of samples. They need matplotlib: ``pip install "detaug[plots]"``."""
