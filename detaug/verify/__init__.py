"""The proof that users run: `detaug.verify(factory)`, and `detaug verify module:factory` on the command line.

The name `detaug.verify` is this package's and the function's at once: Python binds a package to its parent under its
own name as soon as anything of it is imported, so the package itself can be called.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from detaug.verify.handed_in import UnusableError
from detaug.verify.result import Cause, Result, Row, Stateless
from detaug.verify.running import verify

__all__ = ["Cause", "Result", "Row", "Stateless", "UnusableError", "verify"]


class _CallablePackage(types.ModuleType):
    __wrapped__ = staticmethod(verify)

    def __call__(self, *arguments: Any, **options: Any) -> Result:
        return verify(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
