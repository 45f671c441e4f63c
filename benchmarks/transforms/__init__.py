"""nnU-Net's pipelines on one thread, against batchgeneratorsv2's."""

from benchmarks.requirements import require

require("nnunetv2", "nilearn")
