"""`preview`: makes batches in this process, looks at them on their way, and stops when there are enough samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected
from detaug.engine.warming import warm_up
from detaug.pictures.planes import NNUNET, checked_orientation
from detaug.pictures.requirements import require_matplotlib
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.previews.recording import Course, Recorder
from detaug.previews.result import Preview, Sample
from detaug.previews.views import Look, View, samples_of
from detaug.processes.threads import one_thread
from detaug.reports.progress import Progress
from detaug.seeding.global_generators import preserved_global_rngs, reseed_global_rngs
from detaug.seeding.tree import Seed, SeedTree, positive_int
from detaug.transforms.building.base import Transform
from detaug.transforms.foreign import ForeignTransform
from detaug.verification.handed_in import Factory, HandedIn, UnusableError, call_factory
from detaug.verification.target import load_factory

if TYPE_CHECKING:
    from detaug.nnunet.verification import Settings as NNUNetSettings

DEFAULT_SEED = 1234

#: Edge in voxels of the patches of the demo, and its axis orientation.
_DEMO_PATCH, _DEMO_ORIENTATION = 104, "RAS"


def preview(
    pipeline: Transform | Factory | str | None = None,
    image: Any = None,
    segmentation: Any = None,
    *,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    orientation: str | None = None,
    spacing: Sequence[float] | None = None,
    channel: int = 0,
    progress: Progress | None = None,
) -> Preview:
    """Look at what a pipeline does to samples: a contact sheet, a row for each sample, a column for each transform.

        detaug.preview("my_package.pipelines:make").save("preview.png")
        detaug.preview(Compose([...]), image, labels)  # in a notebook: the sheet itself

    Samples are those that a training with this seed gets, made in this process. Transforms of detaug are looked at one by
    one, with their params, wherever they are: in a loader, a data set or a composition; those of batchgenerators and
    batchgeneratorsv2 one by one, without params; of all others the sheet has before and after.

    Args:
        pipeline: a function without arguments (or where it is, as ``"module:factory"``) that returns (loader, transform), a
            map-style data set or a DeterministicAugmenter, as for `detaug.verify`; a pipeline itself, which is applied to
            `image`; None: the demo's.
        image: (C, X, Y) or (C, X, Y, Z) floating point, for a pipeline itself; None: the demo's MRI.
        segmentation: of the same spatial shape; labels, or regions if it is bool.
        samples: how many rows.
        seed: None: the factory's augmenter's own, else 1234.
        epoch, step: of the first batch.
        orientation: axis orientation of the volumes, as ``"RAS"``; None: nnU-Net's, "SPL". For the names of planes alone.
        spacing: lengths of a voxel's edges, one for each axis; None: equal.
        channel: which channel of images is shown.
        progress: shows what is done.

    Raises:
        UnusableError: (a ValueError) there is no pipeline with images there; the message says why.
        NotInstalled: matplotlib is not, or the demo's MRI.
        TypeError, ValueError: an argument is invalid.
    """
    require_matplotlib()
    positive_int("samples", samples)
    shown = progress or Progress()
    direct = isinstance(pipeline, Transform) or (pipeline is not None and image is not None)
    if image is None and (pipeline is None or direct):
        orientation = orientation or _DEMO_ORIENTATION
    look = Look(checked_orientation(orientation or NNUNET), spacing, channel)
    if direct:
        return _of_one_image(
            pipeline, image, segmentation, samples, DEFAULT_SEED if seed is None else seed, epoch, look
        )
    if image is not None or segmentation is not None:
        raise TypeError("image and segmentation go with a pipeline, which is the first argument")
    if isinstance(pipeline, DeterministicAugmenter):
        raise TypeError("pass the function that makes the augmenter: lambda: DeterministicAugmenter(...)")
    shown.update("make the pipeline", total=samples)
    if pipeline is None:
        factory, title = _demo(), "detaug's transforms on the MNI152 MRI"
    elif isinstance(pipeline, str):
        factory, title = load_factory(pipeline), pipeline
    elif callable(pipeline):
        factory, title = pipeline, f"{pipeline.__module__}:{getattr(pipeline, '__qualname__', 'factory')}"
    else:
        raise TypeError(f"the pipeline must be a transform or a function that makes one, got {type(pipeline).__name__}")
    return of_factory(factory, title, samples, seed, epoch, step, look, shown)


def preview_training(
    settings: NNUNetSettings,
    progress: Progress,
    *,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    orientation: str | None = None,
    spacing: Sequence[float] | None = None,
    channel: int = 0,
) -> Preview:
    """The training samples of nnU-Net's trainer, without the training; otherwise as `preview`.

    Raises:
        CannotVerify, CannotRemake: (ValueErrors) there is no such training.
        UnsupportedNNUNet: nnU-Net's version is not.
    """
    from detaug.nnunet.remaking import training_batches

    require_matplotlib()
    progress.update("make the trainer", total=samples)
    with preserved_global_rngs():
        batches = training_batches(settings)
        edges = batches.spacing if spacing is None else spacing
        look = Look(checked_orientation(orientation or NNUNET), edges, channel)
        return of_factory(lambda: batches.augmenter, batches.title, samples, seed, epoch, step, look, progress)


def of_factory(
    factory: Factory, title: str, samples: int, seed: Seed | None, epoch: int, step: int, look: Look, shown: Progress
) -> Preview:
    """The first samples from that step on. Arguments and errors as of `preview`."""
    with preserved_global_rngs(), one_thread():
        made = call_factory(factory)
        producer, seed, num_streams = _producer(made, seed)
        recorder, rows = Recorder(look), list[Sample]()
        at = step
        while len(rows) < samples:
            shown.update(f"epoch {epoch}, step {at}", done=len(rows))
            raw: list[View] = []
            recorder.next_batch()
            try:
                with recorder.recording():
                    batch = producer.make(epoch, at, watch=partial(_look_at_raw, raw, look))
            except StreamEnded:
                if at - step >= num_streams:  # every stream has had its turn
                    break
                at += 1
                continue
            except (UnusableError, MemoryError):
                raise
            except Exception as error:
                where = f"epoch {epoch}, step {at}"
                raise UnusableError(f"the pipeline fails at {where}: {type(error).__name__}: {error}") from error
            rows += _rows(batch, raw, recorder.courses, epoch, at, look)
            at += 1
        if not rows:
            raise UnusableError(f"the loader gives no batch at epoch {epoch}, step {step}")
        rows = rows[:samples]
        return Preview(title, _subtitle(seed, rows[0].before, look), rows, _last(made))


def _rows(
    batch: Any, raw: Sequence[View], courses: dict[int, Course], epoch: int, step: int, look: Look
) -> list[Sample]:
    try:
        delivered = [(look.at(image, labels), name) for image, labels, name in samples_of(batch)]
    except ValueError as error:
        raise UnusableError(str(error)) from error
    rows = []
    for number, (after, name) in enumerate(delivered):
        course = courses.get(number, Course())
        before = course.before or (raw[number] if number < len(raw) else after)
        last = course.steps[-1].view if course.steps else before
        title = f"epoch {epoch}, step {step}, sample {number}" + (f": {name}" if name else "")
        rows.append(Sample(title, before, course.steps, None if last.looks_as(after) else after))
    return rows


def _look_at_raw(raw: list[View], look: Look, _: str, item: Any) -> None:
    """Note the samples of the raw batch; none where it is not one yet."""
    with suppress(ValueError):
        raw[:] = [look.at(image, labels) for image, labels, _ in samples_of(item)]


def _producer(made: HandedIn, seed: Seed | None) -> tuple[Producer, Seed, int]:
    seed = next(each for each in (seed, made.seed, DEFAULT_SEED) if each is not None)
    try:
        augmenter = DeterministicAugmenter(
            made.source, made.transform, 0, seed=seed, name=made.name, num_streams=made.num_streams, keep=made.keep,
            check=False, rank=0, world_size=1,
        )  # fmt: skip
        with augmenter:
            pipeline = Pipeline(made.source, made.transform, must_travel=False, keep=made.keep)
            warm_up(made.transform, made.source.loader)
            return Producer(pipeline.pristine, inspected(augmenter).branch), augmenter.seed, augmenter.num_streams
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error


def _last(made: HandedIn) -> str:
    return "as delivered" if made.transform is None else f"after {type(made.transform).__name__}"


def _subtitle(seed: Seed, view: View, look: Look) -> str:
    channels = f"channel {look.channel} of {view.shape[0]}, {view.dtype}"
    return f"seed {seed} · {channels}"


# --- a pipeline and an image ------------------------------------------------------------------------------------------


def _of_one_image(
    pipeline: Any, image: Any, segmentation: Any, samples: int, seed: Seed, epoch: int, look: Look
) -> Preview:
    if image is None:
        case = _template()
        image, segmentation = case.image[None], case.labels[None]
    arrays = {"image": image} if segmentation is None else {"image": image, "segmentation": segmentation}
    call = _caller(pipeline)
    warm_up(pipeline, None)
    tree = SeedTree(seed)
    rows: list[Sample] = []
    for number in range(samples):
        recorder = Recorder(look)
        try:
            before = look.at(image, segmentation)
            with preserved_global_rngs(), one_thread(), recorder.recording():
                made = call(arrays, tree.generator(epoch, 0, sample=number))
            after = look.at(made["image"], made.get("segmentation"))
        except (TypeError, ValueError, KeyError, IndexError, RuntimeError) as error:
            raise UnusableError(f"the pipeline fails on this image: {type(error).__name__}: {error}") from error
        steps = recorder.courses.get(0, Course()).steps
        last = steps[-1].view if steps else before
        rows.append(Sample(f"epoch {epoch}, sample {number}", before, steps, None if last.looks_as(after) else after))
    name = type(pipeline).__name__
    return Preview(name, _subtitle(seed, rows[0].before, look), rows, f"after {name}")


def _caller(pipeline: Any) -> Callable[[dict[str, Any], np.random.Generator], Any]:
    if isinstance(pipeline, Transform):
        return lambda arrays, rng: pipeline.of_sample(arrays, {name: name for name in arrays}, rng)
    if not callable(pipeline):
        raise TypeError(f"the pipeline must be a transform, got {type(pipeline).__name__}")
    if type(pipeline).__module__.startswith("batchgenerators."):
        return lambda arrays, rng: _of_batches(pipeline, arrays, rng)
    foreign = ForeignTransform(pipeline)
    return lambda arrays, rng: foreign.apply(arrays, foreign.sample(rng, {}))


def _of_batches(pipeline: Any, arrays: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """One sample through a transform of batchgenerators, which takes whole batches and writes into them."""
    names = {"image": "data", "segmentation": "seg"}
    batch = {names[name]: np.array(value, np.float32)[None] for name, value in arrays.items()}
    reseed_global_rngs(np.random.SeedSequence(int(rng.random() * 2**53)))
    made = pipeline(**batch)
    return {name: made[key][0] for name, key in names.items() if made.get(key) is not None}


# --- the demo ---------------------------------------------------------------------------------------------------------


def _template() -> Any:
    from detaug.demo.mri import load_template

    return load_template()


def _demo() -> Factory:
    from detaug.demo.loader import MRIPatchLoader, enlarged, native_transforms

    size = (_DEMO_PATCH,) * 3
    loader = MRIPatchLoader([_template()], 1, enlarged(size))
    return lambda: (loader, native_transforms(size))
