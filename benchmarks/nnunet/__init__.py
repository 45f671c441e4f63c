"""nnU-Net's loader with its transforms against detaug's."""

from benchmarks.command import require

require("nnunetv2", "nilearn")
