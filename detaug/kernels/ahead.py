"""Compiles kernels ahead of time, announces it, and shows the progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from detaug.kernels.compiling import Kernel, is_kept
from detaug.kernels.sharing import work_of
from detaug.kernels.side_by_side import compile_side_by_side, processes_for
from detaug.reports.progress import progress

logger = logging.getLogger("detaug")

#: Seconds that an idle core compiles a byte of bytecode: all kernels take 34 s.
_SECONDS_PER_BYTE = 34 / 158_212


def compile_ahead(kernels: Iterable[Kernel], load: bool = True) -> int:
    """Compile kernels, or load them from the cache on disk.

    Announces what has to be compiled in the log (INFO) where that is shown, else on stderr, with a bar on a terminal.

    Args:
        kernels: which.
        load: whether this process will call them. Else those that are in the cache are left there.

    Returns:
        How many were not in the cache.
    """
    asked = list(dict.fromkeys(kernels))
    missing = [each for each in asked if not each.is_compiled()]
    if missing:
        began = time.perf_counter()
        plural = "s" if len(missing) > 1 else ""
        with progress("compiling", len(missing), told=False) as shown:
            processes = processes_for(len(missing)) if is_kept() else 0
            seconds = work_of(missing) * _SECONDS_PER_BYTE / max(1, processes)
            cores = f"{processes} idle cores" if processes else "an idle core"
            text = (
                f"compiling {len(missing)} kernel{plural}, about {max(1, round(seconds))} s on {cores}, once for this machine; "
                "`detaug warmup` does it ahead"
            )
            say = logger.info if logger.isEnabledFor(logging.INFO) else shown.say
            say(text)
            if processes:
                compile_side_by_side(missing, processes, lambda name, done: shown.update(f"compiled {name}", done))
            left = [each for each in missing if not each.is_compiled()]
            shown.update(done=len(missing) - len(left))
            for each in left:
                shown.update(f"compiling {each.name}")
                each.compile()
                shown.advance()
        say(f"compiled {len(missing)} kernel{plural} in {time.perf_counter() - began:.0f} s")
    if load:
        for each in asked:
            each.compile()
    return len(missing)
