"""Transforms that consist of transforms: a sequence, one with a probability, one of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.random import Generator

from detaug.kernels.compiling import Kernel
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.calls import Keys, checked_keys
from detaug.transforms.building.gate import (
    ParamContext,
    anything,
    flag,
    integer,
    many,
    needed_if,
    takes,
)
from detaug.transforms.building.stages import AppliedTransform
from detaug.transforms.building.workspace import Workspace


class _Composition(Transform):
    """A transform that consists of transforms, which check their own params."""

    def parts(self) -> list[Transform]:
        """Return all transforms that it may apply."""
        raise NotImplementedError

    def applied(self, params: Params) -> list[AppliedTransform]:
        """Return the transforms that these params apply, in order."""
        raise NotImplementedError

    def sample(self, rng: Generator, shapes: Shapes) -> Params:
        # Nothing is deferred: a composition has no scalar of its own that could take the image.
        return self.draw(rng, shapes, {})

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        # Shapes are not compared here: each part compares its own.
        self.change(workspace, params)

    def _apply_parts(self, workspace: Workspace, params: Params) -> None:
        for part in self.applied(params):
            part.transform.apply_in(workspace, part.params)

    def stages(self, params: Params) -> list[AppliedTransform]:
        stages = []
        for part in self.applied(params):
            for stage in part.transform.stages(part.params):
                place = (*part.place, *stage.place)
                stages.append(AppliedTransform(place, stage.transform, stage.params))
        return stages

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        for part in self.applied(params):
            shapes = part.transform.output_shapes(shapes, part.params)
        return dict(shapes)

    @property
    def moves_voxels(self) -> bool:  # type: ignore[override]
        # Of all parts, drawn or not: whether a call is refused must not depend on its seed.
        return any(transform.moves_voxels for transform in self.parts())

    @property
    def spatial_dims(self) -> int | None:  # type: ignore[override]
        # That of the first transform that has one: no transform before it changes it.
        for transform in self.parts():
            if transform.spatial_dims is not None:
                return transform.spatial_dims
        return None

    @property
    def kernels(self) -> Iterable[Kernel]:
        # Of all parts: they are compiled before the first batch, when nothing is drawn yet.
        kernels: list[Kernel] = []
        for transform in self.parts():
            kernels.extend(transform.kernels)
        return kernels


def _num_transforms(context: ParamContext) -> int:
    return len(context.transform.transforms)


class Compose(_Composition):
    """Transforms one after another.

    Args:
        transforms: the transforms, in the order in which they are applied.
        keys: the roles of a call's keys that have other names than their roles: ``{"image":
            "image", "label": "segmentation"}``. Roles are ``image``, ``segmentation`` and
            ``regression_target``, for whole batches also ``data``, ``seg`` and ``target``. None:
            the array is left as it is. Several names may have one role: such arrays (images of one
            spatial shape, for example) are joined along their channels while they are transformed.
        dim: the number of spatial axes that samples must have, 2 or 3. None: the number that the
            transforms' patch size has, if one of them has a patch size.

    Params: ``{"transforms": [params of each]}``.

    Raises:
        TypeError: a part is no detaug transform, or ``keys`` is no mapping of names.
        ValueError: a role or a number of dimensions that does not exist.
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
        # Checked again, because users may assign to the list later.
        return checked_transforms(self.transforms)

    def applied(self, params: Params) -> list[AppliedTransform]:
        parts = []
        pairs = zip(self.transforms, params["transforms"], strict=True)
        for index, (transform, own) in enumerate(pairs):
            parts.append(AppliedTransform((index,), transform, own))
        return parts

    @property
    def spatial_dims(self) -> int | None:  # type: ignore[override]
        # Computed in any case: it checks the transforms.
        dims_of_parts = super().spatial_dims
        if self.dim is not None:
            return self.dim
        return dims_of_parts

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        params = []
        for transform in self.parts():
            own = transform.sample(rng, shapes)
            params.append(own)
            # The next transform draws for the shapes that it will get; there are no arrays yet.
            shapes = transform.output_shapes(shapes, own)
        return {"transforms": params}

    @takes(transforms=many(anything, _num_transforms))
    def change(self, workspace: Workspace, params: Params) -> None:
        self._apply_parts(workspace, params)

    def stages(self, params: Params) -> list[AppliedTransform]:
        if type(self).change is not Compose.change:
            # A subclass that does more than its parts: it cannot be taken apart.
            return [AppliedTransform((), self, params)]
        return super().stages(params)


def _is_applied(context: ParamContext) -> bool:
    return context.params["apply_transform"]  # type: ignore[no-any-return]


class RandomApply(_Composition):
    """A transform that is applied with a probability.

    Params: ``{"apply_transform": bool}``, and if so ``"params"`` of the transform.
    """

    def __init__(self, transform: Transform, apply_probability: float = 1.0) -> None:
        (self.transform,) = checked_transforms([transform])
        self.apply_probability = checks.probability("apply_probability", apply_probability)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        # No params are drawn for a transform that is not applied: they would take time.
        if not draws.happens(rng, self.apply_probability):
            return {"apply_transform": False}
        return {"apply_transform": True, "params": self.transform.sample(rng, shapes)}

    @takes(apply_transform=flag, params=needed_if(_is_applied, anything))
    def change(self, workspace: Workspace, params: Params) -> None:
        self._apply_parts(workspace, params)

    def parts(self) -> list[Transform]:
        return [self.transform]

    def applied(self, params: Params) -> list[AppliedTransform]:
        if not params["apply_transform"]:
            return []
        return [AppliedTransform((), self.transform, params["params"])]


def _last_transform(context: ParamContext) -> int:
    return len(context.transform.list_of_transforms) - 1


class OneOf(_Composition):
    """One of several transforms, each with the same probability; their own probabilities also hold.

    Params: ``{"chosen": number, "params": params of that one}``.
    """

    def __init__(self, list_of_transforms: Sequence[Transform]) -> None:
        # `__repr__` shows attributes as arguments, so that both have one name.
        self.list_of_transforms = checked_transforms(list_of_transforms)
        if not self.list_of_transforms:
            raise ValueError("OneOf needs at least one transform to choose from")

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        chosen = draws.integer(rng, len(self.list_of_transforms))
        return {"chosen": chosen, "params": self.list_of_transforms[chosen].sample(rng, shapes)}

    @takes(chosen=integer(0, _last_transform), params=anything)
    def change(self, workspace: Workspace, params: Params) -> None:
        self._apply_parts(workspace, params)

    def parts(self) -> list[Transform]:
        return self.list_of_transforms

    def applied(self, params: Params) -> list[AppliedTransform]:
        chosen = params["chosen"]
        return [AppliedTransform((chosen,), self.list_of_transforms[chosen], params["params"])]


def checked_transforms(transforms: Sequence[Any]) -> list[Transform]:
    """Return transforms as a list.

    Raises:
        TypeError: one of them is no detaug transform.
        ValueError: one of them has an argument ``keys`` of its own.
    """
    for transform in transforms:
        if not isinstance(transform, Transform):
            raise TypeError(
                f"{transform!r} is not a detaug transform: it has no sample() and apply(). Wrap it"
                " in detaug.transforms.ForeignTransform, or write it as a subclass of"
                " detaug.transforms.Transform."
            )
        if "keys" in vars(transform):
            raise ValueError(
                f"keys={transform.keys!r} belongs to the outermost pipeline, which is the one that"
                f" is called: pass it there, not to the {type(transform).__name__} within"
            )
    return list(transforms)
