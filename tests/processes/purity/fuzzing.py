"""Random pipelines, every batch of which is compared with itself made alone in a fresh process.

    python -m tests.processes.purity.fuzzing --minutes 5        # from a random seed on
    python -m tests.processes.purity.fuzzing --from 0 --count 40 --methods fork

A difference is allowed only where detaug raised or warned. This process makes no pipeline: each run, and each batch
that is made alone, has a fork of it, which finds classes and modules as they were imported. Nonzero exit: a pipeline
differed silently, or a correct one was refused; its seed is printed and runs it again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from detaug import DeterministicAugmenter, fingerprint
from tests.processes.purity.fuzz_pipelines import START_METHODS, Spec, augmenter
from tests.processes.purity.ways import listening

#: Errors of these pipelines' own code: no words of detaug's.
_MISTAKES = ("NotImplementedError", "AttributeError", "NameError", "KeyError", "IndexError", "ZeroDivisionError")
#: Seconds of a training within which a difference has to be mentioned.
_TRAINING = 10.0
#: Seconds after which a run is taken to hang.
_PATIENCE = 120

Prints = list[tuple[int, int, str]]


@dataclass
class Outcome:
    """What became of a pipeline.

    Attributes:
        different: (epoch, step) of batches that are not what they are when made alone.
        said: what detaug raised or warned of.
        failure: the run or a batch made alone ended in a way that nothing explains.
    """

    spec: Spec
    different: list[tuple[int, int]]
    said: list[str]
    failure: str = ""

    @property
    def silent(self) -> bool:
        """Differences without a word."""
        return bool(self.different) and not self.said

    @property
    def false_alarm(self) -> bool:
        """A correct pipeline that was refused, although all of it can be copied."""
        read_only = any("read-only" in sentence for sentence in self.said)  # bulk arrays are shared, and say so
        return self.spec.correct and bool(self.said) and not self.different and not read_only

    @property
    def verdict(self) -> str:
        if self.failure:
            return "FAILED"
        if self.silent:
            return "SILENT"
        if self.false_alarm:
            return "REFUSED"
        return "told" if self.said else "same"


def examine(spec: Spec) -> Outcome:
    """Run a pipeline and make each of its batches again, alone."""
    try:
        made, said = in_a_fork(lambda: _run(spec))
        alone = {(epoch, step): in_a_fork(lambda e=epoch, s=step: _alone(spec, e, s)) for epoch, step, _ in made}
    except ChildFailed as failure:
        return Outcome(spec, [], [], str(failure))
    mistakes = [sentence for sentence in said if any(mistake in sentence for mistake in _MISTAKES)]
    if mistakes:
        return Outcome(spec, [], [], mistakes[0])
    different = []
    for epoch, step, digest in made:
        found, words = alone[epoch, step]
        if found != digest:
            different.append((epoch, step))
            said += words
    if different and not said:
        # These few milliseconds may end before a check does. Nobody trains for so short a time.
        _, said = in_a_fork(lambda: _run(spec, _TRAINING))
    return Outcome(spec, different, said)


def _run(spec: Spec, seconds: float = 0.0) -> tuple[Prints, list[str]]:
    """The batches of the epochs as a training takes them, and what was said; again and again for so many seconds, or
    until something is said."""
    end = time.monotonic() + seconds
    made: Prints = []
    with listening() as heard:
        try:
            with augmenter(spec) as running:
                for epoch in spec.epochs:
                    made += _epoch(running, epoch)
                epoch = max(spec.epochs)
                while time.monotonic() < end and not heard:
                    epoch += 1
                    _epoch(running, epoch)
        except Exception as error:
            heard.append(f"{type(error).__name__}: {error}")
    return made, heard


def _epoch(running: DeterministicAugmenter, epoch: int) -> Prints:
    made: Prints = []
    running.set_epoch(epoch)
    while True:
        step = running.step
        try:
            made.append((epoch, step, fingerprint(next(running))))
        except StopIteration:
            return made


def _alone(spec: Spec, epoch: int, step: int) -> tuple[str, list[str]]:
    """One batch, by replay."""
    with listening() as heard:
        try:
            with augmenter(spec, num_processes=0) as one:
                return fingerprint(one.replay(epoch, step)), heard
        except Exception as error:
            return "", [*heard, f"{type(error).__name__}: {error}"]


class ChildFailed(Exception):
    """A forked child gave no answer."""


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What `work` gives in a child of this process, through JSON."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            logging.getLogger("detaug").propagate = False
            signal.alarm(_PATIENCE)
            answer = json.dumps(work())
            with os.fdopen(writing, "w") as out:
                out.write(answer)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        raise ChildFailed(f"no answer; exit status {status}")
    return json.loads(text)


def report(outcome: Outcome) -> None:
    spec = {key: value for key, value in asdict(outcome.spec).items() if key != "seed"}
    words = f"  {outcome.said[0][:300]}" if outcome.said else ""
    at = f"  differs at {outcome.different[:4]}" if outcome.different else ""
    print(f"{outcome.verdict:7} seed {outcome.spec.seed}: {spec}{at}{words}{outcome.failure}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="go on for so long")
    parser.add_argument("--from", type=int, dest="first", help="the first seed (default: random)")
    parser.add_argument("--count", type=int, help="so many pipelines")
    parser.add_argument("--methods", nargs="*", default=list(START_METHODS), choices=START_METHODS)
    parser.add_argument("--quiet", action="store_true", help="print what went wrong only")
    options = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(10**9) if options.first is None else options.first
    end = time.monotonic() + 60 * options.minutes if options.minutes else None
    count = options.count if options.count is not None or end is not None else 20
    seeds = range(first, sys.maxsize if count is None else first + count)
    counts: Counter[str] = Counter()
    for seed in seeds:
        if end is not None and time.monotonic() > end:
            break
        outcome = examine(Spec.of(seed, tuple(options.methods)))
        counts[outcome.verdict] += 1
        if not options.quiet or outcome.verdict.isupper():
            report(outcome)
    print(json.dumps(counts))
    return 1 if any(verdict.isupper() for verdict in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
