"""`detaug nnunet verify`: is a training of nnU-Net on a user's data reproducible, and where does it diverge?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detaug.lazy_exports import lazily

if TYPE_CHECKING:
    from detaug.nnunet.verification.comparing import Origin
    from detaug.nnunet.verification.result import Result, Row
    from detaug.nnunet.verification.settings import Settings
    from detaug.nnunet.verification.verifying import TrainingFailed, verify_training
    from detaug.nnunet.verification.wrong_use import CannotVerify

__all__ = ["CannotVerify", "Origin", "Result", "Row", "Settings", "TrainingFailed", "verify_training"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "detaug.nnunet.verification.comparing": ("Origin",),
        "detaug.nnunet.verification.result": ("Result", "Row"),
        "detaug.nnunet.verification.settings": ("Settings",),
        "detaug.nnunet.verification.verifying": ("TrainingFailed", "verify_training"),
        "detaug.nnunet.verification.wrong_use": ("CannotVerify",),
    },
)
