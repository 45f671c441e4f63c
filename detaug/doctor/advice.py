"""The advice of `detaug doctor`: rules over the record that `environment` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from detaug.training.switches.table import CUBLAS_ALLOWED
from detaug.versions import SUPPORTED_NNUNET

Level = Literal["ok", "note", "warning"]
Record = Mapping[str, Any]

GIB = 2**30
#: A 3-D batch is tens of MB, and loaders keep several per worker. Docker's default is 64 MiB.
SMALL_SHARED_MEMORY = 2 * GIB
#: macOS's default is 256; loaders that pass tensors by file descriptor have used up Linux's common 1024 (pytorch #11201).
FEW_OPEN_FILES = 1024
#: nnU-Net's value where it does not know the card, and most cards'.
NNUNET_PROCESSES = 12


@dataclass(frozen=True)
class Advice:
    """One line of advice.

    Attributes:
        level: ``"ok"``; ``"note"``, worth knowing; ``"warning"``, results may not be reproducible or a run may fail.
        topic: one or two words.
        text: the finding, and what to do.
    """

    level: Level
    topic: str
    text: str


def advice(environment: Record) -> list[Advice]:
    """Advice on a record of `environment`, warnings first. Rules without an entry in the record are skipped."""
    found = [each for rule in _RULES for each in rule(environment)]
    return sorted(found, key=lambda each: ("warning", "note", "ok").index(each.level))


def _shared_memory(environment: Record) -> Iterator[Advice]:
    shared = environment.get("shared_memory")
    if not shared:
        return
    total, free = shared["total"], shared["free"]
    if min(total, free) < SMALL_SHARED_MEMORY:
        text = (
            f"/dev/shm has {_size(free)} free of {_size(total)}. detaug needs none of it, but torch's DataLoader and "
            "batchgenerators' augmenters do, and die with a bus error when it is full: docker run --shm-size=8g or --ipc=host"
        )
        yield Advice("note", "shared memory", text)
    else:
        yield Advice("ok", "shared memory", f"/dev/shm has {_size(free)} free of {_size(total)}")


def _cores(environment: Record) -> Iterator[Advice]:
    cpu = environment.get("cpu") or {}
    usable = cpu.get("usable_cores")
    if not usable:
        return
    chosen = _variable(environment, "nnUNet_n_proc_DA")
    if chosen is not None and not chosen.isdigit():
        yield Advice(
            "warning", "cores", f"nnUNet_n_proc_DA={chosen!r} is no number, and nnU-Net will not start: unset it"
        )
        return
    processes = int(chosen) if chosen is not None else NNUNET_PROCESSES
    source = f"nnUNet_n_proc_DA={chosen}" if chosen is not None else f"nnU-Net's default of {processes} processes"
    if processes > usable:
        text = (
            f"{source} is more than the {usable} usable core(s); the processes compete for them. "
            f"Set nnUNet_n_proc_DA={max(1, usable - 1)}: detaug's batches do not depend on it"
        )
        yield Advice("note", "cores", text)
    else:
        yield Advice("ok", "cores", f"{usable} usable cores for {source}")
    logical = cpu.get("logical_cores") or usable
    if usable < logical:
        text = f"{usable} of {logical} cores may be used (affinity or control group); programs that count cores start too many"
        yield Advice("note", "cores", text)


def _start_method(environment: Record) -> Iterator[Advice]:
    methods = environment.get("multiprocessing") or {}
    method = methods.get("start_method") or methods.get("default_start_method")
    if method == "fork" and (environment.get("gpu") or {}).get("cuda_started"):
        text = "CUDA is running and the start method is fork: forked workers cannot use it. detaug starts its own apart"
        yield Advice("note", "start method", text)
    elif method:
        yield Advice("ok", "start method", f"{method}; it does not change detaug's batches")


def _kernel_cache(environment: Record) -> Iterator[Advice]:
    cache = environment.get("kernel_cache")
    if not cache:
        return
    there = f"{cache['compiled']} of {cache['kernels']} kernels are compiled"
    if not cache["writable"] and not cache["warm"]:
        text = (
            f"{there} and no folder for them can be written to, so every process compiles its own: set NUMBA_CACHE_DIR to one "
            "that can be, and run `detaug warmup`"
        )
        yield Advice("warning", "compile cache", text)
    elif not cache["warm"]:
        yield Advice("note", "compile cache", f"{there}; the first batches wait for the rest: run `detaug warmup`")
    else:
        yield Advice("ok", "compile cache", there)


def _deterministic_algorithms(environment: Record) -> Iterator[Advice]:
    switches = environment.get("switches") or {}
    mode = switches.get("torch.use_deterministic_algorithms")
    # A CPU is reproducible without; a doctor asked in a fresh process sees the defaults and not the training's.
    level: Level = "note"
    if mode is False:
        text = "torch.use_deterministic_algorithms is off here; a training switches it on with deterministic_mode() or "
        yield Advice(level, "deterministic mode", text + "seed_everything(deterministic=True)")
    elif mode == "warn":
        text = (
            "torch.use_deterministic_algorithms only warns: operations without a deterministic algorithm still differ"
        )
        yield Advice(level, "deterministic mode", text)
    elif mode is True:
        yield Advice("ok", "deterministic mode", "torch.use_deterministic_algorithms is on")
    if switches.get("torch.backends.cudnn.benchmark"):
        text = "torch.backends.cudnn.benchmark is on: it picks convolutions by timing. Switch it off, or use deterministic_mode()"
        yield Advice("warning", "cuDNN", text)
    if switches.get("torch.cuda.tunable"):
        text = "TunableOp is on (PYTORCH_TUNABLEOP_ENABLED): it picks matrix products by timing. Switch it off"
        yield Advice("warning", "TunableOp", text)


def _cublas(environment: Record) -> Iterator[Advice]:
    if not _has_cuda(environment):
        return
    value = _variable(environment, "CUBLAS_WORKSPACE_CONFIG")
    if value in CUBLAS_ALLOWED:
        yield Advice("ok", "cuBLAS", f"CUBLAS_WORKSPACE_CONFIG={value}")
    elif value is None:
        text = "CUBLAS_WORKSPACE_CONFIG is not set: export CUBLAS_WORKSPACE_CONFIG=:4096:8 before CUDA starts"
        yield Advice("warning", "cuBLAS", text)
    else:
        text = f"cuBLAS is not reproducible with CUBLAS_WORKSPACE_CONFIG={value}: set {' or '.join(CUBLAS_ALLOWED)}"
        yield Advice("warning", "cuBLAS", text)


def _tf32(environment: Record) -> Iterator[Advice]:
    if not _has_cuda(environment):
        return
    if _variable(environment, "NVIDIA_TF32_OVERRIDE") == "1":
        yield Advice("warning", "TF32", "NVIDIA_TF32_OVERRIDE=1 forces TF32 on, whatever is set in torch: unset it")
        return
    switches = environment.get("switches") or {}
    names = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")
    on = [name for name in names if switches.get(name) is True]
    if on:
        text = f"{' and '.join(on)} on: reproducible on one kind of GPU, different on another. deterministic_mode() clears it"
        yield Advice("note", "TF32", text)
    else:
        yield Advice("ok", "TF32", "off")


def _nccl(environment: Record) -> Iterator[Advice]:
    if len((environment.get("gpu") or {}).get("devices") or ()) < 2:
        return
    algorithm, multicast = _variable(environment, "NCCL_ALGO"), _variable(environment, "NCCL_NVLS_ENABLE")
    if algorithm is not None and "NVLS" not in algorithm.upper() and multicast == "0":
        yield Advice("ok", "NCCL", f"NCCL_ALGO={algorithm} NCCL_NVLS_ENABLE=0")
    else:
        text = (
            "several GPUs, and NCCL may add up in another order (pytorch #154880): export NCCL_ALGO=Ring "
            "NCCL_NVLS_ENABLE=0 before training on more than one, and keep their number"
        )
        yield Advice("warning", "NCCL", text)


def _threads(environment: Record) -> Iterator[Advice]:
    usable = (environment.get("cpu") or {}).get("usable_cores")
    threads = (environment.get("threads") or {}).get("torch")
    chosen = _variable(environment, "OMP_NUM_THREADS")
    if usable and threads and threads > usable:
        text = f"torch uses {threads} threads on {usable} usable core(s): set OMP_NUM_THREADS={usable} at most"
        yield Advice("note", "threads", text)
    elif chosen is None:
        text = (
            f"OMP_NUM_THREADS is not set, so the number of cores decides ({threads} here). Sums on the CPU may change with "
            "it: set it for trainings that must be reproducible on another machine"
        )
        yield Advice("note", "threads", text)
    else:
        yield Advice("ok", "threads", f"OMP_NUM_THREADS={chosen}, torch uses {threads}")


def _open_files(environment: Record) -> Iterator[Advice]:
    limits = environment.get("open_files")
    if not limits:
        return
    soft = limits["soft"]
    if soft is not None and soft <= FEW_OPEN_FILES:
        text = (
            f"only {soft} open files are allowed. detaug closes what it has mapped, but torch's DataLoader keeps one for each "
            'tensor in flight ("Too many open files"): ulimit -n 65536'
        )
        yield Advice("note", "open files", text)
    else:
        yield Advice("ok", "open files", f"{soft if soft is not None else 'any number'} allowed")


def _nnunet(environment: Record) -> Iterator[Advice]:
    version = (environment.get("packages") or {}).get("nnunetv2")
    if version is None:
        return
    if version.startswith(tuple(f"{each}." for each in SUPPORTED_NNUNET)):
        yield Advice("ok", "nnU-Net", f"nnunetv2 {version}")
    else:
        known = " or ".join(f"{each}.x" for each in SUPPORTED_NNUNET)
        text = f"nnunetv2 {version} is not {known}, which detaug.nnunet supports: pip install 'detaug[nnunet]'"
        yield Advice("warning", "nnU-Net", text)


def _compile(environment: Record) -> Iterator[Advice]:
    if _variable(environment, "nnUNet_compile") in ("true", "1", "t", "True", "TRUE"):
        text = (
            "nnUNet_compile asks for torch.compile, which may pick kernels by timing: export nnUNet_compile=f is safest"
        )
        yield Advice("warning", "torch.compile", text)
    if _variable(environment, "TORCHINDUCTOR_MAX_AUTOTUNE") == "1":
        text = "TORCHINDUCTOR_MAX_AUTOTUNE=1 lets torch.compile pick kernels by timing: unset it"
        yield Advice("warning", "torch.compile", text)


def _hash_seed(environment: Record) -> Iterator[Advice]:
    if _variable(environment, "PYTHONHASHSEED") in (None, "random"):
        text = "PYTHONHASHSEED is not set: detaug does not need it, but code that loops over sets of strings does. Set it to 0"
        yield Advice("note", "hash seed", text)
    else:
        yield Advice("ok", "hash seed", f"PYTHONHASHSEED={_variable(environment, 'PYTHONHASHSEED')}")


def _variable(environment: Record, name: str) -> str | None:
    value = (environment.get("variables") or {}).get(name)
    return None if value is None else str(value)


def _has_cuda(environment: Record) -> bool:
    gpu = environment.get("gpu") or {}
    return bool(gpu.get("cuda") and gpu.get("devices"))


def _size(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / 2**20:.0f} MiB"


_RULES: Iterable[Callable[[Record], Iterator[Advice]]] = (
    _deterministic_algorithms,
    _cublas,
    _tf32,
    _nccl,
    _compile,
    _nnunet,
    _kernel_cache,
    _shared_memory,
    _cores,
    _threads,
    _start_method,
    _open_files,
    _hash_seed,
)
