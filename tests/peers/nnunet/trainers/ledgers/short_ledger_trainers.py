"""Where nnU-Net finds the trainers of `in_process`."""

from tests.peers.nnunet.trainers.in_process import ShortDetAug

__all__ = ["ShortDetAug"]
