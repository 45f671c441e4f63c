"""What every transform is: params first, drawn from a Generator and the shapes alone, then their
application.

    params = transform.sample(rng, {"image": (1, 128, 128, 128)})
    arrays = transform.apply({"image": image}, params)

`transform(image=image, rng=rng)` does both. Because params need no voxel, those of a whole pipeline
are known before the first one is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from detaug.kernels.compiling import Kernel
from detaug.transforms.building import draws
from detaug.transforms.building.calls import apply_with_roles, call, roles_of
from detaug.transforms.building.gate import KEY, VOXEL_KEYS, checked
from detaug.transforms.building.grids import grid_among
from detaug.transforms.building.stages import DEFERRED, AppliedTransform
from detaug.transforms.building.workspace import Workspace

Params = dict[str, Any]
Shapes = Mapping[str, Any]
Context = Mapping[str, Any]
RandomScalar = draws.RandomScalar


class Transform:
    """A transform of one sample: ``image``, ``segmentation``, ``regression_target``.

    Subclasses implement `change`, and `draw` if they have params, `output_shapes` if they change
    shapes, `kernels` if they call compiled functions.

    Attributes:
        keys: the caller's name -> the role of its array, or None where it is left as it is (see
            `Compose`).
        needs: the role without whose array it draws nothing and does nothing; None: it is always
            applied.
        moves_voxels: whether it may put voxels elsewhere; then ``keypoints`` and boxes, which would
            stay, are refused.
        spatial_dims: how many spatial axes samples must have, 2 or 3; None: the transform takes
            both.
    """

    keys: Mapping[str, str | None] = MappingProxyType({})
    needs: str | None = None
    moves_voxels: bool = True
    spatial_dims: int | None = None

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        """Draw params; without this method there are none. ``context`` holds the image where a
        user's callable takes it; else it is empty.
        """
        return {}

    def change(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace."""
        raise NotImplementedError(f"{type(self).__name__} has no method change")

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        """The shapes after the transform."""
        return dict(shapes)

    @property
    def kernels(self) -> Iterable[Kernel]:
        """The compiled kernels that the transform may call; a subclass may have a tuple in its
        place.
        """
        return ()

    def __call__(self, *, rng: np.random.Generator | None = None, **arrays: Any) -> dict[str, Any]:
        """Sample params and apply them.

        Args:
            rng: where params are drawn from. Inside a `DeterministicAugmenter` it may be left out:
                the n-th call in a batch gets the batch's n-th sample child.
            arrays: one sample (see `Workspace`), or a whole batch as batchgenerators has it:
                ``data`` (B, C, X, Y[, Z]) with ``seg`` or ``target``. Each sample of a batch gets
                its own Generator.

        Returns:
            The same keys; arrays that were changed are new, of the kind (NumPy or torch) that came
            in.

        Raises:
            RuntimeError: no ``rng``, and no augmenter is making a batch here.
            TypeError: ``rng`` is a seed, or a generator of another kind.
            ValueError: an array of the image's spatial shape under a key that is neither known nor
                in `keys`, or one that has not as many axes as the transform is made for.
        """
        return call(self, arrays, rng)

    def sample(self, rng: np.random.Generator, shapes: Shapes) -> Params:
        """Draw params.

        Args:
            shapes: ``{"image": (C, X, Y[, Z]), ...}`` of what the transform will be applied to, by
                role.
        """
        if self.needs is not None and shapes.get(self.needs) is None:
            return {}
        if any(
            draws.asks_for(wanted, "image") for wanted in vars(self).values() if callable(wanted)
        ):
            return {DEFERRED: draws.key(rng)}
        return self._drawn(rng, shapes, {})

    def _drawn(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        try:
            return self.draw(rng, shapes, context)
        except draws.NoNumber as error:
            function, value = error.args
            name = next(
                (name for name, wanted in vars(self).items() if wanted is function), "a callable"
            )
            raise ValueError(
                f"{type(self).__name__}: {name} must be finite numbers, but {function!r} gave "
                f"{value!r}"
            ) from None

    def apply(self, arrays: Mapping[str, Any], params: Params) -> dict[str, Any]:
        """Apply params to a sample's arrays; the given arrays are unchanged.

        Raises:
            KeyError: a key that the transform's params have is missing. IndexError: params name a
                channel that there is not.
            Otherwise as `__call__`.
        """
        return apply_with_roles(self, arrays, roles_of(self, arrays), params)

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace.

        Raises:
            As `detaug.transforms.building.gate.takes`. ValueError: the result has another shape
                than `output_shapes` said.
        """
        if self.needs is not None and self.needs not in workspace:
            return
        if not isinstance(params, dict):
            raise TypeError(
                f"params of {type(self).__name__} must be a dict, as sample gives it, got "
                f"{params!r}"
            )
        if DEFERRED in params:
            # a user's callable wants the image: only now is there one
            key = checked(self, params, workspace.shapes(), {DEFERRED: KEY})[DEFERRED]
            params = self._drawn(
                draws.generator_of(key), workspace.shapes(), {"image": workspace.get("image")}
            )
        before = workspace.shapes()
        self.change(workspace, params)
        after = workspace.shapes()
        if (after is not before and after != before) or type(
            self
        ).output_shapes is not Transform.output_shapes:
            announced = self.output_shapes(before, params)
            _compare_shapes(self, after, announced)
            if grid_among(announced) != workspace.grid:
                workspace.grid = grid_among(announced) or workspace.grid

    def stages(self, params: Params) -> list[AppliedTransform]:
        """The transforms that these params apply, in order; `apply_in` of each with its params is
        the same as of this one.
        """
        return [AppliedTransform((), self, params)]

    def warm_up(self) -> None:
        """Compile all kernels that the transform may call, or load them from the cache. What takes
        time is announced.
        """
        from detaug.kernels.ahead import compile_ahead  # which imports what most calls do without

        compile_ahead(self.kernels)

    def describe(self, params: Params) -> str:
        """What these params do, for people: a line for each transform that is applied, with its
        place and its params.
        """
        return "\n".join(map(str, self.stages(params))) or "nothing is applied"

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"


def _compare_shapes(transform: Transform, after: Shapes, announced: Shapes) -> None:
    for key in VOXEL_KEYS:
        if key in after and announced.get(key) is not None and after[key] != tuple(announced[key]):
            raise ValueError(
                f"{type(transform).__name__} gave {key} of shape {after[key]}, but "
                f"{tuple(announced[key])} was expected, and "
                "the params of later transforms are drawn for that. A ForeignTransform gets the "
                "argument shapes_after=lambda "
                f'shapes: {{"{key}": {after[key]}}}; else give {type(transform).__name__} the '
                "method def "
                f'output_shapes(self, shapes, params): return {{**shapes, "{key}": {after[key]}}}'
            )


class ImageTransform(Transform):
    """A transform of ``image`` alone; without an image it draws nothing and does nothing."""

    needs = "image"
    moves_voxels = False


# Their public home: modules in here may be rebuilt.
Transform.__module__ = ImageTransform.__module__ = "detaug.transforms"
