"""`detaug nnunet verify`: does a training of nnU-Net's, on a user's own data, repeat itself, and where does it not?"""

from detaug.nnunet.verification.comparing import Origin
from detaug.nnunet.verification.result import Result, Row
from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.verifying import TrainingFailed, verify_training
from detaug.nnunet.verification.wrong_use import CannotVerify

__all__ = ["CannotVerify", "Origin", "Result", "Row", "Settings", "TrainingFailed", "verify_training"]
