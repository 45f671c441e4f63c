"""The run-time check: `checks` says which batches are made a second time, and what it means where they differ; `hash_order` has
one made in other interpreters."""

from detaug.engine.checking.checks import (
    DEFAULT_CHECK_EVERY,
    Again,
    Check,
    Checks,
    Difference,
    Inquiry,
    is_checked,
    make_again,
    remark_on_process,
)

__all__ = [
    "DEFAULT_CHECK_EVERY",
    "Again",
    "Check",
    "Checks",
    "Difference",
    "Inquiry",
    "is_checked",
    "make_again",
    "remark_on_process",
]
