"""Looks at samples on their way through pipelines of detaug's transforms, one transform after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from detaug.previews.views import View
from detaug.transforms.building.base import Transform
from detaug.transforms.building.stages import observed, shown_params
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.compose import RandomApply
from detaug.transforms.foreign import ForeignTransform

#: Keys from which noise is made, and where callables draw from: 64 bits that tell a reader nothing.
_HIDDEN = ("key", "keys", "deferred_key", "apply_to_channel")


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


@contextmanager
def recorded(**look: Any) -> Iterator[dict[int, Course]]:
    """Inside, the courses of a batch's samples, by their number, through the pipelines of detaug's that run in this thread.

    Args:
        look: options of `planes_of`.
    """
    roots: list[Transform] = []  # the pipeline of each call
    courses: dict[int, Course] = {}

    def observe(root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        sample = sum(each is root for each in roots)  # it is called once for each
        roots.append(root)
        number = [*dict.fromkeys(map(id, roots))].index(id(root))
        course = courses.setdefault(sample, Course())

        def view() -> View | None:
            return View.of(workspace["image"], workspace.get("segmentation"), **look) if "image" in workspace else None

        if course.before is None:
            course.before = view()
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            now = view()
            if now is not None:
                course.steps.append(Step((number, *stage.place), name_of(stage.transform), caption(stage.params), now))

    with observed(observe):
        yield courses


def name_of(transform: Transform) -> str:
    """The class of a transform, or of the one within what applies it with a probability."""
    return type(transform.transform if isinstance(transform, (ForeignTransform, RandomApply)) else transform).__name__


def caption(params: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each param that says something."""
    said = {name: value for name, value in params.items() if name not in _HIDDEN and value not in (None, [], (), {})}
    return tuple(shown_params({name: value}) for name, value in said.items())
