"""What runs in a process of its own for every measurement: it takes batches, and notes when."""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from detaug.bench.engine import Integers, ReadyLoader, ready_batch
from detaug.bench.settings import INTEGER, READY, Run
from detaug.bench.systems import Epochs, NotForThis, running
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.warming import warm_up
from detaug.previews.compositions import compositions_through, is_composition, name_of
from detaug.previews.views import NoImage, samples_of
from detaug.processes.threads import one_thread
from detaug.reports.notices import collected_notices
from detaug.transforms.building.base import Transform
from detaug.transforms.building.stages import observed
from detaug.transforms.building.workspace import Workspace
from detaug.verification.handed_in import HandedIn, UnusableError, call_factory
from detaug.verification.target import load_factory

#: Batches that are taken at least, however long they take, and how many times the seconds that costs at most.
LEAST, PATIENCE = 4, 4

#: The part of a run that is not counted: processes start, queues fill.
WARM_UP = 0.3

#: Samples that `time_transforms` counts at least.
_LEAST_SAMPLES = 8


@dataclass
class Taken:
    """Batches as the training got them.

    Attributes:
        began: the start, in seconds of the system's clock that all processes share.
        stamps: seconds from the start until each was there.
        waits: seconds that the training waited for each.
    """

    began: float = 0.0
    stamps: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def counted(self) -> slice:
        """Those after the warm-up."""
        return slice(min(max(1, int(len(self.stamps) * WARM_UP)), len(self.stamps) - 1), None)

    @property
    def rate(self) -> float:
        """Batches per second after the warm-up."""
        first: int = self.counted.start
        return (len(self.stamps) - 1 - first) / (self.stamps[-1] - self.stamps[first])


@dataclass
class Times:
    """Mean seconds per sample of each transform, in order; a transform that is not applied to a sample counts 0 for it."""

    seconds: dict[str, float]
    samples: int


class Failure(Exception):
    """A measurement cannot be made; the message says why. It crosses processes."""


def main(sender: Connection, run: Run) -> None:
    """Measure, and send the result: ``(True, Taken or Times)`` or ``(False, why not)``."""
    try:
        with collected_notices():
            sender.send((True, measure(run)))
    except (UnusableError, NotForThis, Failure) as error:
        sender.send((False, str(error)))
    except KeyboardInterrupt:
        sender.send((False, "interrupted"))
    except BaseException as error:
        lines = traceback.format_exception_only(error)[-1].strip().splitlines()
        sender.send((False, lines[0] if lines else type(error).__name__))
    sender.close()


def measure(run: Run) -> Any:
    """`take` or `time_transforms`.

    Raises:
        UnusableError, NotForThis, Failure: it cannot be measured.
        Exception: whatever the pipeline raises.
    """
    made = call_factory(_ENGINE[run.load] if run.load else _factory(run.settings.target))
    warm_up(made.transform, made.source.loader)
    if not run.system:
        return time_transforms(made, run)
    with running(run, made) as epochs:
        return take(epochs, run.seconds, run.step)


def take(epochs: Epochs, seconds: float, step: float) -> Taken:
    """Take batches for so many seconds, as a training whose steps take `step` seconds does.

    Raises:
        Failure: there are no batches.
    """
    taken = Taken(time.monotonic())
    began = time.perf_counter()
    batches = _endless(epochs)
    while True:
        asked = time.perf_counter()
        batch = next(batches)
        now = time.perf_counter()
        taken.stamps.append(now - began)
        taken.waits.append(now - asked)
        since_first = taken.stamps[-1] - taken.stamps[0]
        enough = len(taken.stamps) > LEAST and since_first > seconds
        if enough or (len(taken.stamps) > 1 and since_first > PATIENCE * seconds):
            del batch
            return taken
        if step:
            time.sleep(step)


def _endless(epochs: Epochs) -> Iterator[Any]:
    while True:
        number = -1
        for number, batch in enumerate(epochs()):  # noqa: B007  # how many there were
            yield batch
        if number < 0:
            raise Failure("the loader gives no batches")


def time_transforms(made: HandedIn, run: Run) -> Times:
    """Make batches in this process, and clock every transform.

    Raises:
        Failure: there is nothing that can be clocked.
    """
    spent: defaultdict[str, float] = defaultdict(float)
    order: dict[tuple[int, ...], str] = {}
    samples = 0

    def clocked(place: tuple[int, ...], transform: Any, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        spent[order.setdefault(place, name_of(transform))] += time.perf_counter() - began
        return result

    def observe(root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        for stage in root.stages(params):
            clocked(stage.place, stage.transform, partial(stage.transform.apply_in, workspace, stage.params))

    def staged(_: Callable[..., Any]) -> Callable[..., Any]:
        def timed(composition: Any, *given: Any, **named: Any) -> Any:
            arrays = given[0] if given else named
            for place, each in enumerate(composition.transforms):
                arrays = each(**arrays) if is_composition(each) else clocked((place,), each, partial(each, **arrays))
            return arrays

        return timed

    augmenter = DeterministicAugmenter(
        made.source, made.transform, 0, seed=run.settings.seed, name=made.name, num_streams=made.num_streams,
        batches_per_epoch=made.batches_per_epoch, keep=made.keep, check_every=0,
        rank=0, world_size=1,
    )  # fmt: skip
    with augmenter, one_thread(), compositions_through(staged), observed(observe):
        batches = _endless(lambda: iter(augmenter))
        next(batches)  # the first one loads libraries and fills caches
        spent.clear()
        until = time.perf_counter() + run.settings.seconds
        while samples < _LEAST_SAMPLES or time.perf_counter() < until:
            if time.perf_counter() > until + PATIENCE * run.settings.seconds:
                break
            try:
                samples += len(samples_of(next(batches)))
            except NoImage as error:
                raise Failure(str(error)) from error
    if not spent:
        raise Failure("its transforms are not known one by one: no composition of detaug or batchgenerators is in it")
    names = [order[place] for place in sorted(order)]
    return Times({name: spent[name] / samples for name in dict.fromkeys(names)}, samples)


_ENGINE: dict[str, Callable[[], Any]] = {
    READY: lambda: (ReadyLoader(ready_batch()), None),
    INTEGER: lambda: (Integers(), None),
}


def _factory(target: str | None) -> Any:
    if target is None or target == STOCK_DEMO:
        from detaug.demo.loader import MRIPatchLoader, enlarged, native_transforms, training_transforms
        from detaug.demo.mri import load_template

        patch = (DEMO_PATCH,) * 3
        transforms = native_transforms if target is None else training_transforms
        return lambda: (MRIPatchLoader([load_template()], 2, enlarged(patch)), transforms(patch))
    return load_factory(target)


#: The demo with batchgenerators' own transforms.
STOCK_DEMO = "batchgenerators"

#: Edge of the demo's patches, in voxels.
DEMO_PATCH = 64
