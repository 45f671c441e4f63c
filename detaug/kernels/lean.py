"""Compiles with less work than Numba does by itself, in interpreters that do nothing else (`detaug.kernels.side_by_side`).

Numba optimises every function that a kernel calls, and makes machine code of it, before it links it into the kernel,
where it is optimised once more; and it looks a call's types up again for every call. Here a function that is only linked
is prepared for inlining and no more, and a call's types are looked up once. All of it is Numba's own machinery: a kernel
computes the same, operation by operation.

What is changed here is not public. With a Numba that is made otherwise, kernels are compiled as ever.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

#: Functions whose loops the compiler finds fit for vectors only before they are inlined; after it, they take up to 2.5
#: times as long.
_OPTIMISED_FIRST = {
    "_limits",
    "_evaluate_plane",
    "_wrap_lines",
    "_convolve_lines",
    "place_row",
    "_inner_part",
    "_mapped",
    "_blend_power",
    "_scale_about",
    "unit_power",
    "power",
}


def compile_lean() -> None:
    """From here on, in this process."""
    with contextlib.suppress(ImportError, AttributeError):
        _link_only()
    with contextlib.suppress(ImportError, AttributeError):
        _remember_types()


def _link_only() -> None:
    """Functions without a wrapper for Python get no machine code of their own: nobody calls them but kernels, into which
    they are linked."""
    library_of_code: Any = import_module("numba.core.codegen").JITCodeLibrary
    context_of_cpu: Any = import_module("numba.core.cpu").CPUContext
    lowering: Any = import_module("numba.core.typed_passes").BaseNativeLowering
    make_function: Any = import_module("numba._dynfunc").make_function

    class Linked(library_of_code):  # type: ignore[misc]
        def _optimize_final_module(self) -> None:
            if self.name in _OPTIMISED_FIRST:
                super()._optimize_final_module()
                return
            passes, builder = self._codegen._module_pass_manager(
                loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
            )
            passes.run(self._final_module, builder)

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0

    lower, executable = lowering.run_pass, context_of_cpu.get_executable
    for needed in (
        "_optimize_final_module",
        "_finalize_final_module",
        "_finalize_dynamic_globals",
        "_ensure_finalized",
    ):
        getattr(library_of_code, needed)

    def run_pass(self: Any, state: Any) -> Any:
        if state.flags.no_cpython_wrapper:
            if state.library is None:
                state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
            state.library.__class__ = Linked
        return lower(self, state)

    def get_executable(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
        if not isinstance(library, Linked):
            return executable(self, library, fndesc, env)
        library.get_pointer_to_function("")
        name = fndesc.qualname.rpartition(".")[2]
        return make_function(fndesc.lookup_module(), name, "", 0, env, (library,))

    lowering.run_pass = run_pass
    context_of_cpu.get_executable = get_executable


def _remember_types() -> None:
    """A function's signature for some types is found once: mostly, that is the tenth or twentieth that Numba tries."""
    function: Any = import_module("numba.core.types.functions").BaseFunction
    look_up = function.get_call_type

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        known = self.__dict__.setdefault("_detaug_known", {})
        key = args, tuple(kws.items())
        if key not in known:
            known[key] = look_up(self, context, args, kws)
        return known[key]

    function.get_call_type = get_call_type
