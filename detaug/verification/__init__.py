"""The proof that users run: `detaug.verify(factory)`, or `detaug verify` on the command line."""

from detaug.errors import UnusableError
from detaug.verification.result import Cause, Result, Row
from detaug.verification.verifying import verify

__all__ = ["Cause", "Result", "Row", "UnusableError", "verify"]
