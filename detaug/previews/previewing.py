"""`preview`: makes batches in this process, looks at them on their way, and stops when there are enough samples."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from detaug.demo.loader import demo_pipeline
from detaug.demo.mri import turned_template
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected
from detaug.engine.warming import warm_up
from detaug.errors import UnusableError
from detaug.pictures.charts import require_matplotlib
from detaug.pipeline.producer import Producer, StreamEnded
from detaug.previews.result import Preview, Sample
from detaug.previews.views import Course, View, name_of, recorded, samples_of
from detaug.reports.progress import Progress
from detaug.seeding.generators import preserved_global_rngs
from detaug.seeding.tree import Seed, positive_int
from detaug.transforms.building.base import Transform
from detaug.transforms.foreign import ForeignTransform
from detaug.verification.handed_in import Factory, HandedIn, call_factory, load_factory

if TYPE_CHECKING:
    from detaug.nnunet.verification.settings import Settings as NNUNetSettings

DEFAULT_SEED = 1234

#: Edge in voxels of the patches of the demo.
_DEMO_PATCH = 104


def preview(
    pipeline: Transform | Factory | str | None = None,
    image: Any = None,
    segmentation: Any = None,
    *,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    spacing: Sequence[float] | None = None,
    channel: int = 0,
    progress: Progress | None = None,
) -> Preview:
    """Look at what a pipeline does to samples: a contact sheet, a row for each sample, a column for each transform.

        detaug.preview("my_package.pipelines:make").save("preview.png")
        detaug.preview(Compose([...]), image, labels)  # in a notebook: the sheet itself

    Samples are those that a training with this seed gets, made in this process. Transforms of detaug are looked at one by
    one, with their params, wherever they are: in a loader, a data set or a composition; of all others the sheet has before
    and after.

    Args:
        pipeline: a function without arguments (or where it is, as ``"module:factory"``) that returns (loader, transform), a
            map-style data set or a DeterministicAugmenter, as for `detaug.verify`; a pipeline itself, which is applied to
            `image`; None: the demo's.
        image: (C, X, Y) or (C, X, Y, Z) floating point, for a pipeline itself; None: the demo's MRI.
        segmentation: of the same spatial shape; labels, or regions if it is bool.
        samples: how many rows.
        seed: None: the factory's augmenter's own, else 1234.
        epoch, step: of the first batch.
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
    shown.update("make the pipeline", total=samples)
    if isinstance(pipeline, Transform) or (callable(pipeline) and image is not None):
        factory, title = _on_image(pipeline, image, segmentation), type(pipeline).__name__
    elif image is not None or segmentation is not None:
        raise TypeError("image and segmentation go with a pipeline, which is the first argument")
    elif pipeline is None:
        factory, title = partial(demo_pipeline, _DEMO_PATCH), "detaug's transforms on the MNI152 MRI"
    elif isinstance(pipeline, str):
        factory, title = load_factory(pipeline), pipeline
    elif isinstance(pipeline, DeterministicAugmenter) or not callable(pipeline):
        raise TypeError(
            f"pass a function that makes the pipeline: lambda: (loader, transform), not a {type(pipeline).__name__}"
        )
    else:
        factory, title = pipeline, f"{pipeline.__module__}:{getattr(pipeline, '__qualname__', 'factory')}"
    look = {"spacing": spacing, "channel": channel}
    with preserved_global_rngs():
        made = call_factory(factory)
        augmenter = _augmenter(made, seed)
    rows, at = list[Sample](), step
    with inspected(augmenter).replayer.producer() as producer:
        while len(rows) < samples:
            shown.update(f"epoch {epoch}, step {at}", done=len(rows))
            try:
                rows += _samples_at(producer, epoch, at, look)
            except StreamEnded:
                if at - step >= augmenter.num_streams:  # every stream has had its turn
                    break
            at += 1
    if not rows:
        raise UnusableError(f"the loader gives no batch at epoch {epoch}, step {step}")
    name = f"name {made.name}" if made.name else "no name"
    subtitle = f"seed {augmenter.seed} · {name} · channel {channel} of {rows[0].before.shape[0]}"
    last = "as delivered" if made.transform is None else f"after {name_of(made.transform)}"
    return Preview(title, subtitle, rows[:samples], last)


def preview_training(settings: NNUNetSettings, spacing: Sequence[float] | None = None, **options: Any) -> Preview:
    """The training samples of nnU-Net's trainer, without the training; options as of `preview`.

    Raises:
        UnusableError: there is no such training, or nnU-Net's version is not supported.
    """
    from detaug.nnunet.remaking import training_batches

    require_matplotlib()
    with preserved_global_rngs():
        augmenter, own, title = training_batches(settings)
        return replace(preview(lambda: augmenter, spacing=own if spacing is None else spacing, **options), title=title)


def _samples_at(producer: Producer, epoch: int, step: int, look: dict[str, Any]) -> list[Sample]:
    """The samples of a batch.

    Raises:
        StreamEnded: there is none.
        UnusableError: the pipeline fails, or gives no images.
    """
    raw: list[View] = []

    def look_at_raw(item: Any) -> None:
        with suppress(ValueError):  # it is no batch yet
            raw[:] = [View.of(image, labels, **look) for image, labels, _ in samples_of(item)]

    try:
        with recorded(**look) as courses:
            batch = producer.make(epoch, step, watch=look_at_raw)
    except (StreamEnded, UnusableError):
        raise
    except Exception as error:
        where = f"epoch {epoch}, step {step}"
        raise UnusableError(f"the pipeline fails at {where}: {type(error).__name__}: {error}") from error
    try:
        delivered = [(View.of(image, labels, **look), name) for image, labels, name in samples_of(batch)]
    except ValueError as error:
        raise UnusableError(str(error)) from error
    rows = []
    for number, (after, name) in enumerate(delivered):
        course = courses.get(number, Course())
        before = course.before or (raw[number] if number < len(raw) else after)
        last = course.last or before
        title = f"epoch {epoch}, step {step}, sample {number}" + (f": {name}" if name else "")
        rows.append(Sample(title, before, course.steps, None if last.looks_as(after) else after))
    return rows


def _augmenter(made: HandedIn, seed: Seed | None) -> DeterministicAugmenter:
    warm_up(made.transform, made.source.loader)
    seed = next(each for each in (seed, made.seed, DEFAULT_SEED) if each is not None)
    try:
        return made.augmenter(seed=seed, batches_per_epoch=None)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error


class _Repeated:
    """A loader whose every batch is one sample."""

    def __init__(self, sample: dict[str, Any]) -> None:
        self.sample = sample

    def __next__(self) -> dict[str, Any]:
        return {name: copy.deepcopy(value)[None] for name, value in self.sample.items()}  # transforms may write into it


def _on_image(pipeline: Any, image: Any, segmentation: Any) -> Factory:
    """The pipeline with a loader of this image; batchgenerators' take batches as they are, others a sample."""
    if image is None:
        case = turned_template()
        image, segmentation = case.image[None], case.labels[None]
    sample = {"data": image} if segmentation is None else {"data": image, "seg": segmentation}
    takes_batches = isinstance(pipeline, Transform) or type(pipeline).__module__.startswith("batchgenerators.")
    transform = pipeline if takes_batches else ForeignTransform(pipeline)
    return lambda: DeterministicAugmenter(
        _Repeated(sample), transform, 0, seed=DEFAULT_SEED, stateless=True, check=False, rank=0, world_size=1
    )
