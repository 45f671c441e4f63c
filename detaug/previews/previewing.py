"""`preview`: makes batches in this process, looks at them on their way, and stops when there are
enough samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from detaug.demo.loader import demo_pipeline
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

#: Edge in voxels of the patches of the demo.
_DEMO_PATCH = 104

#: The place of what the batch shows beyond detaug's own transforms: behind all of these.
_AT_THE_END = (2**32,)


def preview(
    pipeline: Factory | str | None = None,
    *,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    channel: int = 0,
) -> Preview:
    """Look at what a pipeline does to samples: a contact sheet, a row for each sample, a column for
    each transform.

        detaug.preview("my_package.pipelines:make").save("preview.png")
        detaug.preview(lambda: (loader, transform))  # in a notebook: the sheet itself

    Samples are those that a training with this seed gets, made in this process. Transforms of
    detaug are looked at one by one, with their params, wherever they are: in a loader, a data set
    or a composition; of all others the sheet has before and after.

    Args:
        pipeline: a function without arguments (or where it is, as ``"module:factory"``) that
            returns (loader, transform), a map-style data set or a DeterministicAugmenter, as for
            `detaug.verify`; None: the demo's.
        samples: how many rows.
        seed: None: the factory's augmenter's own, else 1234.
        epoch, step: of the first batch.
        channel: which channel of images is shown.

    Raises:
        UnusableError: (a ValueError) there is no pipeline with images there; the message says why.
        NotInstalled: matplotlib is not, or the demo's MRI.
        TypeError, ValueError: an argument is invalid.
    """
    factory: Factory
    if pipeline is None:
        factory, title = (
            partial(demo_pipeline, _DEMO_PATCH),
            "detaug's transforms on the MNI152 MRI",
        )
    elif isinstance(pipeline, str):
        factory, title = load_factory(pipeline), pipeline
    elif callable(pipeline) and not isinstance(pipeline, Transform):
        factory, title = (
            pipeline,
            f"{pipeline.__module__}:{getattr(pipeline, '__qualname__', 'factory')}",
        )
    else:
        raise TypeError(
            "pass a function that makes the pipeline: lambda: (loader, transform), not a"
            f" {type(pipeline).__name__}"
        )
    with preserved_global_rngs():
        return _previewed(factory, title, samples, seed, epoch, step, channel)


def preview_training(settings: NNUNetSettings, **options: Any) -> Preview:
    """The training samples of nnU-Net's trainer, without the training; options as of `preview`.

    Raises:
        UnusableError: there is no such training, or nnU-Net's version is not supported.
    """
    from detaug.nnunet.training_batches import training_batches

    with preserved_global_rngs():
        augmenter, spacing, title = training_batches(settings)
        return _previewed(lambda: augmenter, title, spacing=spacing, **options)


def _previewed(
    factory: Factory,
    title: str,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    channel: int = 0,
    spacing: Sequence[float] | None = None,
) -> Preview:
    require_matplotlib()
    positive_int("samples", samples)
    made = call_factory(factory)
    warm_up(made.transform, made.source.loader)
    try:
        augmenter = made.augmenter(seed=seed, batches_per_epoch=None)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error
    name_of_last = "as delivered" if made.transform is None else name_of(made.transform)
    rows, at = list[Sample](), step
    with augmenter.setup.replayer.producer() as producer:
        while len(rows) < samples:
            try:
                rows += _samples_at(
                    producer, epoch, at, name_of_last, channel=channel, spacing=spacing
                )
            except StreamEnded:
                if at - step >= augmenter.num_streams:  # every stream has had its turn
                    break
            at += 1
    if not rows:
        raise UnusableError(f"the loader gives no batch at epoch {epoch}, step {step}")
    name = f"name {made.name}" if made.name else "no name"
    subtitle = f"seed {augmenter.seed} · {name} · channel {channel} of {rows[0].before.shape[0]}"
    return Preview(title, subtitle, rows[:samples])


def _samples_at(
    producer: Producer, epoch: int, step: int, name_of_last: str, **look: Any
) -> list[Sample]:
    """The samples of a batch; `look` is what `planes_of` wants.

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
            delivered = View.of(image, labels, **look)
            sample = samples.get(number) or Sample(raw[number] if number < len(raw) else delivered)
            sample.title = f"{where}, sample {number}" + (f": {name}" if name else "")
            if delivered.print != sample.last.print:
                sample.add(_AT_THE_END, name_of_last, [], delivered)
            rows.append(sample)
    except (StreamEnded, UnusableError):
        raise
    except Exception as error:
        raise UnusableError(
            f"the pipeline fails at {where}: {type(error).__name__}: {error}"
        ) from error
    return rows
