"""Compiles with less work than Numba does by itself, in interpreters that do nothing else (`detaug.kernels.side_by_side`).

Numba optimises every function that a kernel calls, and makes machine code of it, before it links it into the kernel,
where it is optimised once more; and it looks a call's types up again for every call. Here a function that is only linked
is prepared for inlining and no more, a call's types are looked up once, and what only serves debugging, measuring and
detailed error messages is left out. All of it is Numba's own machinery: a kernel computes the same, operation by operation.

What is changed here is not public. With a Numba that is made otherwise, kernels are compiled as ever.
"""

from __future__ import annotations

import contextlib
import functools
import types
from importlib import import_module
from typing import Any, cast

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
#: Kernels that take as long without: their loops wait for memory, or are unrolled where they are written.
_NOT_UNROLLED = {
    "convolve",
    "convolve_periodic",
    "dilate",
    "evaluate_plane",
    "filter_lines",
    "from_k_space",
    "interpolate_axes",
    "keep_ball",
    "largest_magnitude",
    "median_filter",
    "project",
    "resample_held",
    "resample_images",
    "resample_labels",
    "settle_axes",
    "small_median_filter",
    "to_k_space",
}


def compile_lean() -> None:
    """From here on, in this process."""
    changes = (
        _link_only,
        _prepare_definitions_only,
        _leave_loops_as_they_are,
        _import_no_scipy,
        _trust_modules,
        _remember_types,
        _list_variables,
        _look_for_lives_last,
        _take_counters_only,
        _leave_wrappers_as_they_are,
        _raise_short,
        _tell_nobody,
    )
    for change in changes:
        with contextlib.suppress(ImportError, AttributeError):
            change()


def _link_only() -> None:
    """Functions without a wrapper for Python get no machine code of their own: nobody calls them but kernels, into which
    they are linked."""
    library_of_code: Any = import_module("numba.core.codegen").JITCodeLibrary
    lowered: Any = import_module("numba.core.lowering").BaseLower
    context_of_cpu: Any = import_module("numba.core.cpu").CPUContext
    lowering: Any = import_module("numba.core.typed_passes").BaseNativeLowering
    make_function: Any = import_module("numba._dynfunc").make_function
    external: Any = import_module("llvmlite.binding").Linkage.external

    class Linked(library_of_code):  # type: ignore[misc]
        _shared_module: Any

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

        def _get_module_for_linking(self) -> Any:
            """The module itself and not a copy, for no machine code is made of it."""
            self._ensure_finalized()
            if self._shared_module is None:
                for function in self._final_module.functions:
                    if not function.is_declaration and function.linkage == external:
                        function.linkage = "linkonce_odr"
                self._shared_module = self._final_module
            return self._shared_module

    lower, executable = lowering.run_pass, context_of_cpu.get_executable
    for needed in (
        "_optimize_final_module",
        "_finalize_final_module",
        "_finalize_dynamic_globals",
        "_ensure_finalized",
        "_get_module_for_linking",
    ):
        getattr(library_of_code, needed)
    getattr(lowered, "create_cfunc_wrapper")  # noqa: B009

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
    # Kernels have none; Numba makes one of each of its own functions that they call.
    lowered.create_cfunc_wrapper = lambda self: None  # noqa: ARG005


def _prepare_definitions_only() -> None:
    """A module's functions are prepared for linking by one set of passes, not by a new one each, and those that the module
    only names are left out."""
    codegen: Any = import_module("numba.core.codegen")
    library, made = codegen.CPUCodeLibrary, codegen.CPUCodegen
    getattr(library, "_optimize_functions")  # noqa: B009
    getattr(made, "_function_pass_manager")  # noqa: B009

    def optimize_functions(self: Any, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    library._optimize_functions = optimize_functions
    # A module is parsed for it before each that is compiled.
    made._check_llvm_bugs = functools.cache(made._check_llvm_bugs)


def _leave_loops_as_they_are() -> None:
    """Copies of loops' bodies are a fifth of the larger kernels' machine code."""
    codegen: Any = import_module("numba.core.codegen")
    binding: Any = import_module("llvmlite.binding")
    library_of_code, make_builder = codegen.JITCodeLibrary, codegen.create_pass_builder
    optimize = library_of_code._optimize_final_module

    def builder_without(machine: Any, opt: int, loop_vectorize: bool, slp_vectorize: bool) -> Any:
        options = binding.create_pipeline_tuning_options(speed_level=opt)
        options.loop_vectorization = loop_vectorize
        options.slp_vectorization = slp_vectorize
        options.loop_unrolling = False
        return binding.create_pass_builder(machine, options)

    def optimize_final_module(self: Any) -> None:
        codegen.create_pass_builder = builder_without if self.name in _NOT_UNROLLED else make_builder
        try:
            optimize(self)
        finally:
            codegen.create_pass_builder = make_builder

    library_of_code._optimize_final_module = optimize_final_module


def _import_no_scipy() -> None:
    """Numba imports all of SciPy's linear algebra to see whether there is a BLAS, which no kernel calls."""
    linear_algebra: Any = import_module("numba.np.linalg")
    getattr(linear_algebra, "ensure_blas")  # noqa: B009
    linear_algebra.ensure_blas = lambda: None


def _trust_modules() -> None:
    """What Numba generates is well formed, or its users would meet that first. Where it is not, this process fails, and the
    caller compiles as ever."""
    module: Any = import_module("llvmlite.binding").ModuleRef
    getattr(module, "verify")  # noqa: B009
    module.verify = lambda self: None  # noqa: ARG005


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


def _list_variables() -> None:
    """A statement's variables are listed for it a dozen times, and most of what it consists of are none."""
    ir: Any = import_module("numba.core.ir")
    variable, instruction = ir.Var, ir.Inst
    list_any = instruction._rec_list_vars
    none = frozenset((ir.Loc, str, int, float, bool, type(None), types.BuiltinFunctionType))

    def list_variables(self: Any, value: Any) -> list[Any]:
        kind = type(value)
        if kind is dict:
            value = value.values()
        elif kind is not list and kind is not tuple:
            return cast("list[Any]", list_any(self, value))
        found = []
        for each in value:
            kind = type(each)
            if kind is variable:
                found.append(each)
            elif kind not in none:
                found += list_variables(self, each)
        return found

    instruction._rec_list_vars = list_variables


def _look_for_lives_last() -> None:
    """Which variables live where is found anew after each of some ten passes, and read only where their ends are marked,
    and in generators."""
    found: Any = import_module("numba.core.postproc")
    canonical: Any = import_module("numba.core.transforms").canonicalize_cfg
    processor, lifetime = found.PostProcessor, found.VariableLifetime
    process = processor.run

    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        code = self.func_ir
        if emit_dels or code.is_generator:
            process(self, emit_dels, extend_lifetimes)
            return
        code.blocks = canonical(code.blocks)
        code.variable_lifetime = lifetime(code.blocks)  # finds what it is asked for when it is asked
        code.generator_info = None

    processor.run = run


def _take_counters_only() -> None:
    """Of an array whose references are counted, only the counter is taken out, not also its sizes, strides and pointers, and a
    variable without counters is not set to zero when it is deleted: these are a fifth of all instructions that Numba makes,
    and nobody uses what they compute."""
    counting: Any = import_module("numba.core.runtime.context").NRTContext
    getattr(counting, "get_meminfos")  # noqa: B009
    lowered: Any = import_module("numba.core.lowering").Lower
    delete_any = lowered.delvar
    known: dict[Any, bool] = {}

    def has_counter(kind: Any, model: Any) -> bool:
        if kind not in known:
            known[kind] = model.contains_nrt_meminfo()
        return known[kind]

    def get_meminfos(self: Any, builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
        models = self._context.data_model_manager
        model = models[kind]
        if not has_counter(kind, model):
            return []
        found = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
        for member, take in model.traverse(builder):
            if has_counter(member, models[member]):
                found += get_meminfos(self, builder, member, take(value))
        return found

    def delete(self: Any, name: str) -> None:
        kind = self.typeof(name)
        if has_counter(kind, self.context.data_model_manager[kind]):
            delete_any(self, name)
            return
        if name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)
        self._alloca_var(name, kind)

    counting.get_meminfos = get_meminfos
    lowered.delvar = delete


def _leave_wrappers_as_they_are() -> None:
    """What unpacks a call's arguments runs once for each call of a kernel: it is made into machine code unoptimised."""
    wrapper: Any = import_module("numba.core.callwrapper").PyCallWrapper
    build = wrapper.build

    def build_plain(self: Any) -> Any:
        made = build(self)
        attributes = self.module.get_global(self.fndesc.llvm_cpython_wrapper_name).attributes
        attributes.add("noinline")  # the other asks for it
        attributes.add("optnone")
        return made

    wrapper.build = build_plain


def _raise_short() -> None:
    """Where an array is assigned to a slice of another shape, the error does not show the shapes: the code that prints them
    is longer than most kernels, and is compiled into each that assigns a slice."""
    arrays: Any = import_module("numba.np.arrayobj")
    overload: Any = import_module("numba.extending").overload
    short = arrays.ol_raise_with_shape_context_generic

    def raise_short(src_shapes: Any, index_shape: Any) -> None:
        raise NotImplementedError

    overload(raise_short)(short)
    arrays.raise_with_shape_context = raise_short


def _tell_nobody() -> None:
    """Numba tells listeners when each of its steps begins and ends. Nobody listens but for the times it keeps."""
    event: Any = import_module("numba.core.event")
    getattr(event, "start_event"), getattr(event, "end_event")  # noqa: B009
    event.start_event = event.end_event = lambda *_, **__: None
