"""`detaug nnunet verify`: is a training of nnU-Net on a user's data reproducible, and where does it diverge?"""

from detaug.nnunet.verification.comparing import Origin
from detaug.nnunet.verification.result import Result, Row
from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.verifying import TrainingFailed, verify_training
from detaug.nnunet.verification.wrong_use import CannotVerify

__all__ = ["CannotVerify", "Origin", "Result", "Row", "Settings", "TrainingFailed", "verify_training"]
