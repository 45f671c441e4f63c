"""`preview`: make batches in this process, and look at their samples on the way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from detaug.augmenter.warm_up import warm_up
from detaug.demo.loader import demo_pipeline
from detaug.errors import UnusableError
from detaug.pipeline.producer import Producer, StreamEnded
from detaug.seeding.generators import preserved_global_rngs
from detaug.seeding.tree import Seed, positive_int
from detaug.tools.pictures.charts import require_matplotlib
from detaug.tools.previews.result import Preview
from detaug.tools.previews.strengths import preview_strengths
from detaug.tools.previews.views import Sample, View, name_of, recorded, samples_of
from detaug.transforms.building.base import Transform
from detaug.transforms.compose import Compose
from detaug.verification.factories import Factory, call_factory, load_factory

if TYPE_CHECKING:
    from detaug.augmenter.augmenter import DeterministicAugmenter
    from detaug.nnunet.verification.settings import Settings as NNUNetSettings

#: With `only_applied`, samples that are looked at for each one that is shown.
_LOOKED_AT = 16

#: Edge in voxels of the patches of the demo.
_DEMO_PATCH = 104

#: The place of other changes than those by detaug's own transforms: after all of these.
_AT_THE_END = (2**32,)


def preview(
    pipeline: Factory | Transform | str | None = None,
    *,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    channel: int = 0,
    only_applied: bool = False,
) -> Preview:
    """Draw what a pipeline does to samples: a row for each sample, a column for each transform.

        detaug.preview("my_package.pipelines:make").save("preview.png")
        detaug.preview(lambda: (loader, transform))  # in a notebook: the sheet itself
        detaug.preview(GaussianNoise((0, 0.2)))  # one image at three strengths

    Samples are those that a training with this seed gets, made in this process. Transforms of
    detaug are looked at one by one, with their params, wherever they are: in a loader, a data set
    or a composition; of all others the sheet has before and after.

    Args:
        pipeline: a function without arguments (or where it is, as ``"module:factory"``) that
            returns (loader, transform), a map-style data set or a DeterministicAugmenter, as for
            `detaug.verify`; None: the demo's. Or one of detaug's transforms: of 16 draws on the
            demo's MRI, the one that changes it least, the median, and the one that changes it
            most.
        samples: how many rows.
        seed: None: the factory's augmenter's own, else 1234.
        epoch, step: of the first batch.
        channel: which channel of images is shown.
        only_applied: look for samples in which most transforms act, and draw one plane of each.

    Raises:
        UnusableError: (a ValueError) there is no pipeline with images there; the message says why.
        NotInstalled: matplotlib is not, or the demo's MRI.
        TypeError, ValueError: an argument is invalid.
    """
    factory: Factory
    title = str(pipeline)
    if isinstance(pipeline, str):
        pipeline = load_factory(pipeline)
    elif callable(pipeline):
        title = _title_of(pipeline)
    if isinstance(pipeline, Transform) and not isinstance(pipeline, Compose):
        with preserved_global_rngs():
            draws_seed = 1234 if seed is None else seed
            return preview_strengths(pipeline, draws_seed, epoch, step, only_applied)
    if pipeline is None:
        factory = partial(demo_pipeline, _DEMO_PATCH)
        title = "detaug's transforms on the MNI152 MRI"
    elif callable(pipeline) and not isinstance(pipeline, Transform):
        factory = pipeline
    else:
        raise TypeError(
            "pass a function that makes the pipeline: lambda: (loader, transform), not a"
            f" {type(pipeline).__name__}"
        )
    with preserved_global_rngs():
        return _previewed(factory, title, samples, seed, epoch, step, channel, only_applied)


def _title_of(factory: Any) -> str:
    """Return where a factory is, as MODULE:FACTORY."""
    name = getattr(factory, "__qualname__", "factory")
    return f"{factory.__module__}:{name}"


def preview_training(settings: NNUNetSettings, **options: Any) -> Preview:
    """Draw the training samples of nnU-Net's trainer, without training; options as of `preview`.

    Raises:
        UnusableError: there is no such training, or nnU-Net's version is not supported.
    """
    from detaug.nnunet.training_batches import training_batches

    with preserved_global_rngs():
        augmenter, spacing, title = training_batches(settings)

        def factory() -> DeterministicAugmenter:
            return augmenter

        return _previewed(factory, title, spacing=spacing, **options)


def _previewed(
    factory: Factory,
    title: str,
    samples: int = 3,
    seed: Seed | None = None,
    epoch: int = 0,
    step: int = 0,
    channel: int = 0,
    only_applied: bool = False,
    spacing: Sequence[float] | None = None,
) -> Preview:
    """Return the preview of a factory's pipeline; arguments as of `preview`."""
    require_matplotlib()
    positive_int("samples", samples)
    pipeline = call_factory(factory)
    warm_up(pipeline.transform, pipeline.source.loader)
    try:
        # Without the pipeline's own limit, so that any step of any epoch can be shown.
        augmenter = pipeline.augmenter(seed=seed, batches_per_epoch=None)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error
    name_of_last = "as delivered"
    if pipeline.transform is not None:
        name_of_last = name_of(pipeline.transform)
    view = {"channel": channel, "spacing": spacing}
    rows: list[Sample] = []
    current_step = step
    with augmenter.setup.replayer.producer() as producer:
        # Whole batches are made, so there may be more rows than wanted: the last line cuts them.
        while len(rows) < (samples * _LOOKED_AT if only_applied else samples):
            try:
                rows += _samples_at(producer, epoch, current_step, name_of_last, **view)
            except StreamEnded:
                if current_step - step >= augmenter.num_streams:
                    # Every stream has had its turn.
                    break
            current_step += 1
    if not rows:
        raise UnusableError(f"the loader gives no batch at epoch {epoch}, step {step}")
    name = f"name {pipeline.name}" if pipeline.name else "no name"
    subtitle = f"seed {augmenter.seed} · {name} · channel {channel} of {rows[0].before.shape[0]}"
    if only_applied:
        # A stable sort: among samples in which equally many transforms act, the first are shown.
        rows.sort(key=_num_unchanged)
    return Preview(title, subtitle, rows[:samples], is_compact=only_applied)


def _num_unchanged(sample: Sample) -> int:
    """Return the sort key that puts samples first in which most transforms act."""
    return -sum(step.changed for step in sample.steps)


def _samples_at(
    producer: Producer, epoch: int, step: int, name_of_last: str, **options: Any
) -> list[Sample]:
    """Return the samples of a batch; options are those of `planes_of`.

    Raises:
        StreamEnded: there is no such batch.
        UnusableError: the pipeline fails, or gives no images.
    """
    raw: list[View] = []

    def look_at_raw(item: Any) -> None:
        # An item without images is no batch yet.
        with suppress(UnusableError):
            raw[:] = [View.of(image, labels, **options) for image, labels, _ in samples_of(item)]

    rows = []
    batch_name = f"epoch {epoch}, step {step}"
    try:
        with recorded(**options) as samples:
            batch = producer.make(epoch, step, on_raw_batch=look_at_raw)
        for number, (image, labels, name) in enumerate(samples_of(batch)):
            delivered = View.of(image, labels, **options)
            sample = samples.get(number)
            if sample is None:
                sample = Sample(raw[number] if number < len(raw) else delivered)
            sample.title = f"{batch_name}, sample {number}"
            if name:
                sample.title += f": {name}"
            # Other libraries' transforms record no steps: only their joint result can be shown.
            if delivered.fingerprint != sample.last.fingerprint:
                sample.add(_AT_THE_END, name_of_last, [], delivered)
            rows.append(sample)
    except (StreamEnded, UnusableError):
        raise
    except Exception as error:
        raise UnusableError(
            f"the pipeline fails at {batch_name}: {type(error).__name__}: {error}"
        ) from error
    return rows
