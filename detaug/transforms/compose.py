"""Transforms made of transforms: one after another, with a probability, one of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from detaug.kernels.compiling import Kernel
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.calls import Keys, checked_keys
from detaug.transforms.building.gate import anything, flag, integer, many, needed_if, takes
from detaug.transforms.building.stages import AppliedTransform
from detaug.transforms.building.workspace import Workspace


class _Composition(Transform):
    """A transform made of transforms, which look after themselves."""

    def parts(self) -> list[Transform]:
        """All transforms that it may apply."""
        raise NotImplementedError

    def applied(self, params: Params) -> list[AppliedTransform]:
        """Those that these params apply, in order."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, shapes: Shapes) -> Params:
        return self.draw(rng, shapes, {})  # it has no scalar of its own that could want the image

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        self.change(workspace, params)

    def _apply_parts(self, workspace: Workspace, params: Params) -> None:
        for part in self.applied(params):
            part.transform.apply_in(workspace, part.params)

    def stages(self, params: Params) -> list[AppliedTransform]:
        return [
            AppliedTransform((*part.place, *stage.place), stage.transform, stage.params)
            for part in self.applied(params)
            for stage in part.transform.stages(part.params)
        ]

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        for part in self.applied(params):
            shapes = part.transform.output_shapes(shapes, part.params)
        return dict(shapes)

    @property
    def moves_voxels(self) -> bool:  # type: ignore[override]
        return any(transform.moves_voxels for transform in self.parts())

    @property
    def spatial_dims(self) -> int | None:  # type: ignore[override]
        # that of the first transform that has one, since none before it changes it
        found = (transform.spatial_dims for transform in self.parts())
        return next((dims for dims in found if dims is not None), None)

    @property
    def kernels(self) -> Iterable[Kernel]:
        return [each for transform in self.parts() for each in transform.kernels]


class Compose(_Composition):
    """Transforms one after another.

    Args:
        transforms: what is applied, in order.
        keys: what the keys of a call are, where they have other names than the roles: ``{"image":
            "image", "label": "segmentation"}``. Roles are ``image``, ``segmentation`` and
            ``regression_target``; for whole batches also ``data``, ``seg`` and ``target``; None:
            what is left as it is. Several names may have one role: such arrays (images of one
                spatial shape, say) are joined along their channels while they are transformed.
        dim: how many spatial axes samples must have, 2 or 3. None: as many as the transforms' patch
            size says, if one has.

    Params: ``{"transforms": [params of each]}``.

    Raises:
        TypeError: something that is no detaug transform, or ``keys`` that is no mapping of names.
        ValueError: a role or number of dimensions that there is not.
    """

    dim: int | None = None

    def __init__(
        self, transforms: Sequence[Transform], *, keys: Keys | None = None, dim: int | None = None
    ) -> None:
        self.transforms = checked_transforms(transforms)
        if keys is not None:
            self.keys = checked_keys(keys)
        if dim is not None:
            self.dim = checks.integer("dim", dim, 2, 3)

    def parts(self) -> list[Transform]:
        return checked_transforms(self.transforms)  # something else may have been put there later

    def applied(self, params: Params) -> list[AppliedTransform]:
        pairs = zip(self.transforms, params["transforms"], strict=True)
        return [
            AppliedTransform((number,), transform, own)
            for number, (transform, own) in enumerate(pairs)
        ]

    @property
    def spatial_dims(self) -> int | None:  # type: ignore[override]
        known = super().spatial_dims
        return known if self.dim is None else self.dim

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        params = []
        for transform in self.parts():
            own = transform.sample(rng, shapes)
            params.append(own)
            shapes = transform.output_shapes(shapes, own)
        return {"transforms": params}

    @takes(transforms=many(anything, lambda given: len(given.transform.transforms)))
    def change(self, workspace: Workspace, params: Params) -> None:
        self._apply_parts(workspace, params)

    def stages(self, params: Params) -> list[AppliedTransform]:
        if type(self).change is not Compose.change:
            return [
                AppliedTransform((), self, params)
            ]  # a subclass that does something else besides
        return super().stages(params)


class RandomApply(_Composition):
    """A transform that is applied with a probability.

    Params: ``{"apply_transform": bool}``, and if so ``"params"`` of the transform.
    """

    def __init__(self, transform: Transform, apply_probability: float = 1.0) -> None:
        (self.transform,) = checked_transforms([transform])
        self.apply_probability = checks.probability("apply_probability", apply_probability)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        if not draws.happens(rng, self.apply_probability):
            return {"apply_transform": False}
        return {"apply_transform": True, "params": self.transform.sample(rng, shapes)}

    @takes(
        apply_transform=flag,
        params=needed_if(lambda given: given.params["apply_transform"], anything),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        self._apply_parts(workspace, params)

    def parts(self) -> list[Transform]:
        return [self.transform]

    def applied(self, params: Params) -> list[AppliedTransform]:
        return (
            [AppliedTransform((), self.transform, params["params"])]
            if params["apply_transform"]
            else []
        )


class OneOf(_Composition):
    """One of several transforms, each as likely as the others; their own probabilities hold as
    well.

    Params: ``{"chosen": number, "params": params of that one}``.
    """

    def __init__(self, list_of_transforms: Sequence[Transform]) -> None:
        self.list_of_transforms = checked_transforms(list_of_transforms)
        if not self.list_of_transforms:
            raise ValueError("OneOf needs at least one transform to choose from")

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        chosen = draws.integer(rng, len(self.list_of_transforms))
        return {"chosen": chosen, "params": self.list_of_transforms[chosen].sample(rng, shapes)}

    @takes(
        chosen=integer(0, lambda given: len(given.transform.list_of_transforms) - 1),
        params=anything,
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        self._apply_parts(workspace, params)

    def parts(self) -> list[Transform]:
        return self.list_of_transforms

    def applied(self, params: Params) -> list[AppliedTransform]:
        return [
            AppliedTransform(
                (params["chosen"],), self.list_of_transforms[params["chosen"]], params["params"]
            )
        ]


def checked_transforms(transforms: Sequence[Any]) -> list[Transform]:
    """The transforms as a list; a TypeError for what is none of detaug's, a ValueError for one with
    ``keys`` of its own.
    """
    for transform in transforms:
        if not isinstance(transform, Transform):
            raise TypeError(
                f"{transform!r} is not a detaug transform: it has no sample() and apply(). Wrap it "
                "in "
                "detaug.transforms.ForeignTransform, or write it as a subclass of "
                "detaug.transforms.Transform."
            )
        if "keys" in vars(transform):
            raise ValueError(
                f"keys={transform.keys!r} belongs to the outermost pipeline, which is the one that "
                "is called: pass it there, "
                f"not to the {type(transform).__name__} within"
            )
    return list(transforms)
