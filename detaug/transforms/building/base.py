"""What every transform is: params first, drawn from a Generator and the shapes alone, then their application.

    params = transform.sample(rng, {"image": (1, 128, 128, 128)})
    arrays = transform.apply({"image": image}, params)

`transform(image=image, rng=rng)` does both. Because params need no voxel, those of a whole pipeline are known before
the first one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from detaug.kernels.compiling import Kernel
from detaug.transforms.building import draws
from detaug.transforms.building.calls import (
    apply_to_batch,
    by_role,
    check_dimensions,
    generator_of_this_sample,
    is_batch,
    roles_of,
)
from detaug.transforms.building.gate import KEY, checked
from detaug.transforms.building.stages import DEFERRED, Stage, apply_observed, arguments_of, described
from detaug.transforms.building.workspace import VOXEL_KEYS, Workspace

Params = dict[str, Any]
Shapes = Mapping[str, Any]
Steps = list[tuple["Transform", Params]]


class Transform:
    """A transform of one sample: ``image``, ``segmentation``, ``regression_target``, ``keypoints``, ``bbox``.

    Subclasses implement `change`, and `draw` if they have params, `output_shapes` if they change shapes, `undo` if they move
    voxels, `kernels` if they call compiled functions.

    Attributes:
        keys: the caller's name -> the role of its array, or None where it is left as it is (see `Compose`).
        needs: the role without whose array it draws nothing and does nothing; None: it is always applied.
    """

    keys: Mapping[str, str | None] = MappingProxyType({})
    needs: str | None = None

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        """Draw params; without this method there are none. ``context`` holds the image where a user's callable takes it;
        else it is empty."""
        return {}

    def change(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace."""
        raise NotImplementedError(f"{type(self).__name__} has no method change")

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        """The shapes after the transform."""
        return dict(shapes)

    @property
    def kernels(self) -> Iterable[Kernel]:
        """The compiled kernels that the transform may call; a subclass may have a tuple in its place."""
        return ()

    def __call__(self, *, rng: np.random.Generator | None = None, **arrays: Any) -> dict[str, Any]:
        """Sample params and apply them.

        Args:
            rng: where params are drawn from. Inside a `DeterministicAugmenter` it may be left out: the n-th call in a
                batch gets the batch's n-th sample child.
            arrays: one sample (see `Workspace`), or a whole batch as batchgenerators has it: ``data`` (B, C, X, Y[, Z]) with
                ``seg`` or ``target``. Each sample of a batch gets its own Generator.

        Returns:
            The same keys; arrays that were changed are new, of the kind (NumPy or torch) that came in.

        Raises:
            RuntimeError: no ``rng``, and no augmenter is making a batch here.
            TypeError: ``rng`` is a seed, or a generator of another kind.
            ValueError: an array of the image's spatial shape under a key that is neither known nor in `keys`, or one that
                has not as many axes as the transform is made for.
        """
        if rng is not None and not isinstance(rng, np.random.Generator):
            seed = rng if isinstance(rng, int) else "seed"
            raise TypeError(
                f"rng must be a numpy.random.Generator, got {type(rng).__name__}: pass "
                f"detaug.SeedTree({seed}).generator(epoch, step, sample=0), or numpy.random.default_rng({seed})"
            )
        if is_batch(arrays, self.keys):
            return apply_to_batch(self, arrays, rng)
        generator = rng if rng is not None else generator_of_this_sample(type(self).__name__)
        return self.of_sample(arrays, roles_of(arrays, self.keys), generator)

    def of_sample(
        self, arrays: Mapping[str, Any], roles: Mapping[str, str], rng: np.random.Generator
    ) -> dict[str, Any]:
        """`__call__` for one sample, of whose arrays the roles are known."""
        return _applied(self, arrays, roles, lambda shapes: self.sample(rng, shapes))

    def sample(self, rng: np.random.Generator, shapes: Shapes) -> Params:
        """Draw params.

        Args:
            shapes: ``{"image": (C, X, Y[, Z]), ...}`` of what the transform will be applied to, by role.
        """
        if self.needs is not None and shapes.get(self.needs) is None:
            return {}
        if any(draws.asks_for(wanted, "image") for wanted in vars(self).values()):
            return {DEFERRED: draws.key(rng)}
        return self._drawn(rng, shapes, {})

    def _drawn(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        try:
            return self.draw(rng, shapes, context)
        except draws.NoNumber as error:
            function, value = error.args
            name = next((name for name, wanted in vars(self).items() if wanted is function), "a callable")
            raise ValueError(
                f"{type(self).__name__}: {name} must be finite numbers, but {function!r} gave {value!r}"
            ) from None

    def apply(self, arrays: Mapping[str, Any], params: Params) -> dict[str, Any]:
        """Apply params to a sample's arrays; the given arrays are unchanged.

        Raises:
            KeyError: a key that the transform's params have is missing. IndexError: params name a channel that there is not.
            Otherwise as `__call__`.
        """
        return _applied(self, arrays, roles_of(arrays, self.keys), lambda _: params)

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace.

        Raises:
            As `detaug.transforms.building.gate.takes`. ValueError: the result has another shape than `output_shapes` said.
        """
        if self.needs is not None and self.needs not in workspace:
            return
        if not isinstance(params, Mapping):
            raise TypeError(f"params of {type(self).__name__} must be a dict, as sample gives it, got {params!r}")
        if DEFERRED in params:
            # a user's callable wants the image: only now is there one
            key = checked(self, params, workspace.shapes(), {DEFERRED: KEY})[DEFERRED]
            params = self._drawn(draws.generator_of(key), workspace.shapes(), {"image": workspace.get("image")})
        before = workspace.shapes()
        self.change(workspace, params)
        after = workspace.shapes()
        if after != before or type(self).output_shapes is not Transform.output_shapes:
            _compare_shapes(self, after, self.output_shapes(before, params))

    def stages(self, params: Params) -> list[Stage]:
        """The transforms that these params apply, in order; `apply_in` of each with its params is the same as of this one."""
        return [Stage((), self, params)]

    def inverse(self, params: Params, shapes: Shapes | None = None) -> Callable[..., dict[str, Any]]:
        """What takes predictions for the transformed sample back into the frame of the original one.

        Crops, mirrored, turned and exchanged axes, rotation, scaling and planes are undone, the last one first; what changes
        values and not places is not. Voxels that the transformed sample did not show become 0. Crops and axes are undone
        exactly; resampled images and labels are resampled once more, with the same modes.

            params = pipeline.sample(rng, {"image": image.shape})
            probabilities = network(pipeline.apply({"image": image}, params)["image"])
            back = pipeline.inverse(params, {"image": image.shape})(image=probabilities)["image"]

        Args:
            params: with which the transform was applied.
            shapes: of the original sample, as for `sample`. Crops and `SpatialTransform` need them.

        Returns:
            A function of arrays by key: ``image`` (any number of channels), ``segmentation``, ``keypoints``, ``bbox``. It
            raises a ValueError where they have another spatial shape than the transformed sample had.

        Raises:
            ValueError: an elastic deformation, params that are drawn from the image, no shapes where they are needed.
        """
        steps = self.undo(params, shapes)
        made = {} if shapes is None else self.output_shapes(shapes, params)
        spaces = [made[key][1:] for key in VOXEL_KEYS if isinstance(made.get(key), tuple)]
        return partial(_undone, steps, self.keys, spaces[0] if spaces else None)

    def undo(self, params: Params, shapes: Shapes | None) -> Steps:
        """What undoes this transform's geometry, in order: transforms with their params; nothing where it has none."""
        return []

    def spatial_dims(self) -> int | None:
        """How many spatial axes samples must have, 2 or 3; None: the transform takes both."""
        return None

    def warm_up(self) -> None:
        """Compile all kernels that the transform may call, or load them from the cache. What takes time is announced."""
        from detaug.kernels.ahead import compile_ahead  # which imports what most calls do without

        compile_ahead(self.kernels)

    def describe(self, params: Params) -> str:
        """What these params do, for people: a line for each transform that is applied, with its place and its params."""
        return described(self.stages(params))

    def __rich_repr__(self) -> Iterator[tuple[str, Any, Any]]:
        return arguments_of(self)

    def __repr__(self) -> str:
        from rich.pretty import pretty_repr  # which imports what most calls do without

        return pretty_repr(self, max_width=100)


def _applied(
    transform: Transform, arrays: Mapping[str, Any], roles: Mapping[str, str], params_for: Callable[[Shapes], Params]
) -> dict[str, Any]:
    check_dimensions(arrays, roles, transform.spatial_dims())
    return _in_a_workspace(
        arrays, roles, lambda workspace: apply_observed(transform, workspace, params_for(workspace.shapes()))
    )


def _undone(
    steps: Steps, keys: Mapping[str, str | None], space: tuple[int, ...] | None, /, **arrays: Any
) -> dict[str, Any]:
    def undo(workspace: Workspace) -> None:
        for key, shape in workspace.shapes().items():
            if key in VOXEL_KEYS and space is not None and shape[1:] != space:
                raise ValueError(
                    f"{key} has the spatial shape {shape[1:]}; the sample that is to be undone had {space}"
                )
        for transform, params in steps:
            transform.apply_in(workspace, params)

    return _in_a_workspace(arrays, roles_of(arrays, keys), undo)


def _in_a_workspace(
    arrays: Mapping[str, Any], roles: Mapping[str, str], change: Callable[[Workspace], None]
) -> dict[str, Any]:
    def changed(sample: dict[str, Any]) -> dict[str, Any]:
        workspace = Workspace(sample)
        change(workspace)
        return workspace.result()

    return by_role(arrays, roles, changed)


def _compare_shapes(transform: Transform, after: Shapes, announced: Shapes) -> None:
    for key in VOXEL_KEYS:
        if key in after and announced.get(key) is not None and after[key] != tuple(announced[key]):
            raise ValueError(
                f"{type(transform).__name__} gave {key} of shape {after[key]}, but {tuple(announced[key])} was expected, and "
                "the params of later transforms are drawn for that. A ForeignTransform gets the argument shapes_after=lambda "
                f'shapes: {{"{key}": {after[key]}}}; else give {type(transform).__name__} the method def '
                f'output_shapes(self, shapes, params): return {{**shapes, "{key}": {after[key]}}}'
            )


def check_known(params: Params) -> None:
    """A ValueError where there is a key in place of params, from which they are drawn once there is an image."""
    if DEFERRED in params:
        raise ValueError("these params are drawn from the image when they are applied: what they do cannot be undone")


class ImageTransform(Transform):
    """A transform of ``image`` alone; without an image it draws nothing and does nothing."""

    needs = "image"


# Their public home: modules in here may be rebuilt.
Transform.__module__ = ImageTransform.__module__ = "detaug.transforms"
