"""`preview`: makes batches in this process, looks at them on their way, and stops when there are enough samples."""

from __future__ import annotations

import copy
from contextlib import suppress
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
from detaug.previews.result import Preview
from detaug.previews.views import Sample, View, name_of, recorded, samples_of
from detaug.seeding.generators import preserved_global_rngs
from detaug.seeding.tree import Seed, positive_int
from detaug.transforms.building.base import Transform
from detaug.verification.handed_in import Factory, call_factory, load_factory

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
    channel: int = 0,
) -> Preview:
    """Look at what a pipeline does to samples: a contact sheet, a row for each sample, a column for each transform.

        detaug.preview("my_package.pipelines:make").save("preview.png")
        detaug.preview(Compose([...]), image, labels)  # in a notebook: the sheet itself

    Samples are those that a training with this seed gets, made in this process. Transforms of detaug are looked at one by
    one, with their params, wherever they are: in a loader, a data set or a composition; of all others the sheet has before
    and after.

    Args:
        pipeline: a function without arguments (or where it is, as ``"module:factory"``) that returns (loader, transform), a
            map-style data set or a DeterministicAugmenter, as for `detaug.verify`; a transform of detaug's, which is applied to
            `image`; None: the demo's.
        image: (C, X, Y) or (C, X, Y, Z) floating point, for a transform; None: the demo's MRI.
        segmentation: of the same spatial shape; labels, or regions if it is bool.
        samples: how many rows.
        seed: None: the factory's augmenter's own, else 1234.
        epoch, step: of the first batch.
        channel: which channel of images is shown.

    Raises:
        UnusableError: (a ValueError) there is no pipeline with images there; the message says why.
        NotInstalled: matplotlib is not, or the demo's MRI.
        TypeError, ValueError: an argument is invalid.
    """
    if isinstance(pipeline, Transform):
        factory, title = _on_image(pipeline, image, segmentation), type(pipeline).__name__
    elif image is not None or segmentation is not None:
        raise TypeError("image and segmentation go with a transform of detaug's, which is the first argument")
    elif pipeline is None:
        factory, title = partial(demo_pipeline, _DEMO_PATCH), "detaug's transforms on the MNI152 MRI"
    elif isinstance(pipeline, str):
        factory, title = load_factory(pipeline), pipeline
    elif callable(pipeline):
        factory, title = pipeline, f"{pipeline.__module__}:{getattr(pipeline, '__qualname__', 'factory')}"
    else:
        raise TypeError(
            f"pass a function that makes the pipeline: lambda: (loader, transform), not a {type(pipeline).__name__}"
        )
    with preserved_global_rngs():
        return _previewed(factory, title, samples, seed, epoch, step, channel=channel)


def preview_training(
    settings: NNUNetSettings,
    *,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    channel: int = 0,
) -> Preview:
    """The training samples of nnU-Net's trainer, without the training; options as of `preview`.

    Raises:
        UnusableError: there is no such training, or nnU-Net's version is not supported.
    """
    from detaug.nnunet.remaking import training_batches

    with preserved_global_rngs():
        augmenter, spacing, title = training_batches(settings)
        return _previewed(lambda: augmenter, title, samples, seed, epoch, step, channel=channel, spacing=spacing)


def _previewed(
    factory: Factory, title: str, samples: int, seed: Seed | None, epoch: int, step: int, **look: Any
) -> Preview:
    """Options are those of `planes_of`."""
    require_matplotlib()
    positive_int("samples", samples)
    made = call_factory(factory)
    warm_up(made.transform, made.source.loader)
    seed = next(each for each in (seed, made.seed, DEFAULT_SEED) if each is not None)
    try:
        augmenter = made.augmenter(seed=seed, batches_per_epoch=None)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error
    rows, at = list[Sample](), step
    with inspected(augmenter).replayer.producer() as producer:
        while len(rows) < samples:
            try:
                rows += _samples_at(producer, epoch, at, look)
            except StreamEnded:
                if at - step >= augmenter.num_streams:  # every stream has had its turn
                    break
            at += 1
    if not rows:
        raise UnusableError(f"the loader gives no batch at epoch {epoch}, step {step}")
    name = f"name {made.name}" if made.name else "no name"
    subtitle = f"seed {augmenter.seed} · {name} · channel {look['channel']} of {rows[0].before.shape[0]}"
    last = "as delivered" if made.transform is None else f"after {name_of(made.transform)}"
    return Preview(title, subtitle, rows[:samples], last)


def _samples_at(producer: Producer, epoch: int, step: int, look: dict[str, Any]) -> list[Sample]:
    """The samples of a batch.

    Raises:
        StreamEnded: there is none.
        UnusableError: the pipeline fails, or gives no images.
    """
    raw: list[View] = []

    def look_at_raw(item: Any) -> None:
        with suppress(UnusableError):  # it is no batch yet
            raw[:] = [View.of(image, labels, **look) for image, labels, _ in samples_of(item)]

    rows, where = [], f"epoch {epoch}, step {step}"
    try:
        with recorded(**look) as samples:
            batch = producer.make(epoch, step, watch=look_at_raw)
        for number, (image, labels, name) in enumerate(samples_of(batch)):
            after = View.of(image, labels, **look)
            sample = samples.get(number) or Sample(raw[number] if number < len(raw) else after)
            sample.title = f"{where}, sample {number}" + (f": {name}" if name else "")
            sample.delivered = None if sample.last.looks_as(after) else after
            rows.append(sample)
    except (StreamEnded, UnusableError):
        raise
    except Exception as error:
        raise UnusableError(f"the pipeline fails at {where}: {type(error).__name__}: {error}") from error
    return rows


class _Repeated:
    """A loader whose every batch is one sample."""

    def __init__(self, sample: dict[str, Any]) -> None:
        self.sample = sample

    def __next__(self) -> dict[str, Any]:
        return {name: copy.deepcopy(value)[None] for name, value in self.sample.items()}  # transforms may write into it


def _on_image(transform: Transform, image: Any, segmentation: Any) -> Factory:
    """The transform with a loader of this image."""
    if image is None:
        case = turned_template()
        image, segmentation = case.image[None], case.labels[None]
    sample = {"data": image} if segmentation is None else {"data": image, "seg": segmentation}
    return lambda: DeterministicAugmenter(
        _Repeated(sample), transform, 0, seed=DEFAULT_SEED, stateless=True, check=False, rank=0, world_size=1
    )
