"""Functions that kernels only link get no machine code of their own: for interpreters that do nothing but compile kernels.

Numba makes machine code of each function that a kernel calls, then links the function into its callers, where that is done
again. Nobody runs the former: a fourteenth of the time is spared without it, and kernels stay the same to the last
instruction. (That functions are optimised by themselves first looks as needless, and another ninth of the time; but without it
some loops find no vectors, and a kernel is up to four times as slow.) Numba's private parts are changed for that, which is
nothing for a user's process. Where a later Numba has others, kernels are compiled as Numba does it.
"""

from __future__ import annotations

from typing import Any

from numba.core import codegen

#: What is replaced, of which classes.
_NEEDED = {
    "CPUCodeLibrary": (
        "_finalize_final_module",
        "_finalize_dynamic_globals",
        "_verify_declare_only_symbols",
    ),
    "JITCPUCodegen": ("set_env",),
}


def link_only_helpers() -> bool:
    """From now on; whether this Numba has the parts for it."""
    classes: dict[str, Any] = {name: getattr(codegen, name, None) for name in _NEEDED}
    if not all(hasattr(classes[name], part) for name, parts in _NEEDED.items() for part in parts):
        return False
    library, generator = classes["CPUCodeLibrary"], classes["JITCPUCodegen"]
    finalize, set_env = library._finalize_final_module, generator.set_env

    def finalize_entries(self: Any) -> None:
        if _is_entry(self):
            finalize(self)
            return
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def set_env_of_entries(self: Any, name: str, environment: Any) -> None:
        if self._engine.is_symbol_defined(name):
            set_env(self, name, environment)

    library._finalize_final_module = finalize_entries
    generator.set_env = set_env_of_entries
    return True


def _is_entry(library: Any) -> bool:
    """Whether something in it can be called from Python."""
    return any(
        not function.is_declaration and "cpython" in function.name for function in library._final_module.functions
    )
