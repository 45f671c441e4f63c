"""nnU-Net's loader with nnU-Net's transforms against `PatchSource` with detaug's: time, memory, and waiting for data."""

from benchmarks.requirements import require

require("nnunetv2", "nilearn")
