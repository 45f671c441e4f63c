"""nnU-Net's loader with its transforms against detaug's: time, memory, and waiting for data."""

from benchmarks.requirements import require

require("nnunetv2", "nilearn")
