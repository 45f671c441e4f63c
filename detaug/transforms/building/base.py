"""The base classes of all transforms: params are drawn first, then applied.

    params = transform.sample(rng, {"image": (1, 128, 128, 128)})
    arrays = transform.apply({"image": image}, params)

Params are drawn from a Generator and the arrays' shapes alone. `transform(image=image, rng=rng)`
does both steps. Because params need no voxel, the params of a whole pipeline are known before the
first voxel is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from numpy.random import Generator

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

    Subclasses implement `change`, `draw` if they have params, `output_shapes` if they change
    shapes, and `kernels` if they call compiled functions.

    Attributes:
        keys: the caller's name -> the role of its array, or None for an array that is left as it is
            (see `Compose`).
        needs: the role without whose array the transform draws nothing and does nothing. None: the
            transform is always applied.
        moves_voxels: the transform may move voxels. Then ``keypoints`` and boxes are refused,
            because they would stay where they are.
        spatial_dims: the number of spatial axes that samples must have, 2 or 3. None: either.
    """

    keys: Mapping[str, str | None] = MappingProxyType({})
    needs: str | None = None
    moves_voxels: bool = True
    spatial_dims: int | None = None

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        """Draw params; a transform without this method has none.

        Args:
            rng: the Generator to draw from.
            shapes: ``{"image": (C, X, Y[, Z]), ...}``, by role.
            context: holds the image if a user's callable takes it; else it is empty.
        """
        return {}

    def change(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace."""
        raise NotImplementedError(f"{type(self).__name__} has no method change")

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        """Return the arrays' shapes after the transform, by role."""
        return dict(shapes)

    @property
    def kernels(self) -> Iterable[Kernel]:
        """The compiled kernels that the transform may call; a subclass may use a tuple instead."""
        return ()

    def __call__(self, *, rng: Generator | None = None, **arrays: Any) -> dict[str, Any]:
        """Sample params and apply them.

        Args:
            rng: the Generator to draw params from. It may be left out inside a
                `DeterministicAugmenter`: there the n-th call in a batch gets the batch's n-th
                sample child.
            arrays: one sample (see `Workspace`), or a whole batch in batchgenerators' form:
                ``data`` (B, C, X, Y[, Z]) with ``seg`` or ``target``. Each sample of a batch gets
                its own Generator.

        Returns:
            The same keys. Arrays that were changed are new, of the kind (NumPy or torch) that was
            passed in.

        Raises:
            RuntimeError: no ``rng``, and no augmenter is making a batch in this thread.
            TypeError: ``rng`` is a seed, or a generator of another kind.
            ValueError: an array of the image's spatial shape has a key that is neither known nor in
                `keys`, or an array has not the number of axes that the transform is made for.
        """
        return call(self, arrays, rng)

    def sample(self, rng: Generator, shapes: Shapes) -> Params:
        """Draw params.

        Args:
            rng: the Generator to draw from.
            shapes: ``{"image": (C, X, Y[, Z]), ...}`` of the arrays that the transform will be
                applied to, by role.
        """
        if self.needs is not None and shapes.get(self.needs) is None:
            return {}
        # There is no image yet: draw a key, from which `apply_in` draws the params.
        if any(draws.asks_for(value, "image") for value in vars(self).values()):
            return {DEFERRED: draws.key(rng)}
        return self._draw_params(rng, shapes, {})

    def _draw_params(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        """Draw params; the error for a callable that returns no number names its argument."""
        try:
            return self.draw(rng, shapes, context)
        except draws.NoNumber as error:
            function, value = error.args
        # Constructors keep a callable under its argument's name.
        argument = "a callable"
        for name, attribute in vars(self).items():
            if attribute is function:
                argument = name
                break
        raise ValueError(
            f"{type(self).__name__}: {argument} must be finite numbers, but {function!r} gave"
            f" {value!r}"
        )

    def apply(self, arrays: Mapping[str, Any], params: Params) -> dict[str, Any]:
        """Apply params to a sample's arrays and return the result; the arrays are not written to.

        Raises:
            KeyError: an array that the params are for is missing.
            IndexError: params name a channel that does not exist.
            TypeError, ValueError: as for `__call__`.
        """
        return apply_with_roles(self, arrays, roles_of(self, arrays), params)

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace.

        Raises:
            KeyError, IndexError, TypeError: as for `detaug.transforms.building.gate.takes`.
            ValueError: likewise, or the result has another shape than `output_shapes` announced.
        """
        # Without that array `sample` has drawn nothing, so that params are empty.
        if self.needs is not None and self.needs not in workspace:
            return
        if not isinstance(params, dict):
            raise TypeError(
                f"params of {type(self).__name__} must be a dict, as sample gives it, got"
                f" {params!r}"
            )
        if DEFERRED in params:
            # A user's callable takes the image, which did not exist before this line.
            key = checked(self, params, workspace.shapes(), {DEFERRED: KEY})[DEFERRED]
            context = {"image": workspace.get("image")}
            params = self._draw_params(draws.generator_of(key), workspace.shapes(), context)
        before = workspace.shapes()
        self.change(workspace, params)
        after = workspace.shapes()
        # Most transforms leave the very same object, so that most calls compare nothing.
        shapes_changed = after is not before and after != before
        # Later params were drawn for the announced shapes: compare them even if nothing has
        # changed.
        announces_shapes = type(self).output_shapes is not Transform.output_shapes
        if shapes_changed or announces_shapes:
            announced = self.output_shapes(before, params)
            _compare_shapes(self, after, announced)
            _move_grid(workspace, announced)

    def stages(self, params: Params) -> list[AppliedTransform]:
        """Return the transforms that these params apply, in order.

        Calling `apply_in` of each with its own params has the same result as `apply_in` of this
        one.
        """
        return [AppliedTransform((), self, params)]

    def warm_up(self) -> None:
        """Compile all kernels that the transform may call, or load them from the cache.

        A compilation that takes time is announced.
        """
        # Imported here because most calls need nothing of what it imports.
        from detaug.kernels.ahead import compile_ahead

        compile_ahead(self.kernels)

    def describe(self, params: Params) -> str:
        """Return text for people: one line for each applied transform, with position and params."""
        # Transforms that are not applied are left out: in most pipelines they are the majority.
        lines = [str(stage) for stage in self.stages(params)]
        return "\n".join(lines) or "nothing is applied"

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"


def _compare_shapes(transform: Transform, after: Shapes, announced: Shapes) -> None:
    """Raise a ValueError if an array's shape is not the one that the transform announced."""
    for key in VOXEL_KEYS:
        if key not in after or announced.get(key) is None:
            continue
        if after[key] != tuple(announced[key]):
            name = type(transform).__name__
            raise ValueError(
                f"{name} gave {key} of shape {after[key]}, but {tuple(announced[key])} was"
                " expected, and the params of later transforms are drawn for that. A"
                " ForeignTransform gets the argument shapes_after=lambda shapes:"
                f' {{"{key}": {after[key]}}}; else give {name} the method def'
                " output_shapes(self, shapes, params): return"
                f' {{**shapes, "{key}": {after[key]}}}'
            )


def _move_grid(workspace: Workspace, announced: Shapes) -> None:
    """Set the workspace's grid to the announced one, if there is one."""
    grid = grid_among(announced)
    # Setting a grid discards the workspace's cached shapes, so that an equal one is not set.
    if grid is not None and grid != workspace.grid:
        workspace.grid = grid


class ImageTransform(Transform):
    """A transform of ``image`` alone; without an image it draws nothing and does nothing."""

    needs = "image"
    moves_voxels = False


# Their public home. Pickles and descriptions contain it, and modules below it may be rebuilt.
Transform.__module__ = "detaug.transforms"
ImageTransform.__module__ = "detaug.transforms"
