"""detaug's transforms against batchgeneratorsv2's, MONAI's and TorchIO's, on one thread."""
