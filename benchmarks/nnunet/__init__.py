"""nnU-Net's loader with its transforms against detaug's."""
