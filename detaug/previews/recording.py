"""Looks at samples on their way through pipelines: detaug's transform by transform, batchgenerators' as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from detaug.previews.captions import caption
from detaug.previews.compositions import compositions_through, is_composition, name_of
from detaug.previews.views import Look, View, samples_of
from detaug.transforms.building.base import Transform
from detaug.transforms.building.stages import observed
from detaug.transforms.building.workspace import Workspace


@dataclass(frozen=True)
class Step:
    """What one transform made of a sample.

    Attributes:
        place: of the transform: which pipeline, and where in it.
        name: the transform's.
        caption: its params; empty where they are not known.
        view: the sample after it.
    """

    place: tuple[int, ...]
    name: str
    caption: tuple[str, ...]
    view: View


@dataclass
class Course:
    """A sample's way through the pipelines.

    Attributes:
        before: as the first pipeline got it; None: it got through none that is known.
        steps: in the order of application.
    """

    before: View | None = None
    steps: list[Step] = field(default_factory=list)


class Recorder:
    """Records the samples of one batch.

    Args:
        look: how they are looked at.

    Attributes:
        courses: by the sample's number in its batch.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._roots: list[Any] = []
        self._calls: list[int] = []
        self._within: list[int] = []  # the place in compositions of another library
        self.courses: dict[int, Course] = {}

    def next_batch(self) -> None:
        """Forget the samples. Pipelines are known by their order: each batch may be made by copies of its own."""
        self.courses = {}
        self._roots, self._calls = [], []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, whatever pipeline runs in this thread is recorded."""
        with compositions_through(self._staged), observed(self._observe):
            yield

    def _root(self, pipeline: Any) -> tuple[int, int]:
        """The number of a pipeline, and how often it was called before for this batch."""
        number = next((n for n, each in enumerate(self._roots) if each is pipeline), len(self._roots))
        if number == len(self._roots):
            self._roots.append(pipeline)
            self._calls.append(0)
        self._calls[number] += 1
        return number, self._calls[number] - 1

    # --- detaug's ---------------------------------------------------------------------------------------------------

    def _observe(self, root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        number, sample = self._root(root)
        course = self.courses.setdefault(sample, Course())

        def view() -> View | None:
            return self._look.at(workspace["image"], workspace.get("segmentation")) if "image" in workspace else None

        if course.before is None:
            course.before = view()
        for stage in root.stages(params):
            seen = len(course.steps)
            self._within, self._first = [number, *stage.place], sample
            try:
                stage.transform.apply_in(workspace, stage.params)
            finally:
                self._within = []
            now = view()
            if now is not None and len(course.steps) == seen:  # else a composition of another library was within
                course.steps.append(Step((number, *stage.place), name_of(stage.transform), caption(stage.params), now))

    # --- batchgenerators' -------------------------------------------------------------------------------------------

    def _staged(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The method of a composition, as it is written there, with a look after every transform."""
        whole_batches = original.__name__ == "__call__"

        @wraps(original)
        def staged(composition: Any, *given: Any, **named: Any) -> Any:
            arrays = named if whole_batches else given[0]
            outermost = not self._within
            if outermost:
                number, call = self._root(composition)
                self._within.append(number)
                self._first = 0 if whole_batches else call
                self._look_at(arrays, None)
            try:
                for place, transform in enumerate(composition.transforms):
                    self._within.append(place)
                    arrays = transform(**arrays)
                    if not is_composition(transform):
                        self._look_at(arrays, name_of(transform))
                    self._within.pop()
            finally:
                if outermost:
                    self._within = []
            return arrays

        return staged

    def _look_at(self, arrays: Any, name: str | None) -> None:
        """After the transform of that name; None: before the first."""
        batch = (
            arrays
            if "data" in arrays
            else {key: value[None] for key, value in arrays.items() if hasattr(value, "shape")}
        )
        for n, (image, labels, _) in enumerate(samples_of(batch)):
            course = self.courses.setdefault(self._first + n, Course())
            view = self._look.at(image, labels)
            if name is None:
                course.before = course.before or view
            else:
                course.steps.append(Step(tuple(self._within), name, (), view))
