"""What every transform is: params first, drawn from a Generator and the shapes alone, then their application.

    params = transform.sample(rng, {"image": (1, 128, 128, 128)})
    arrays = transform.apply({"image": image}, params)

`transform(image=image, rng=rng)` does both. Because params need no voxel, those of a whole pipeline are known before
the first one is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from detaug.kernels.compiling import Kernel
from detaug.seeding.current import current
from detaug.transforms.building import draws
from detaug.transforms.building.batches import apply_to_batch
from detaug.transforms.building.roles import by_role, check_dimensions, is_batch, sample_roles
from detaug.transforms.building.workspace import Workspace

Params = dict[str, Any]
Shapes = Mapping[str, Any]

_DEFERRED = "deferred_key"


class Transform(ABC):
    """A transform of one sample: ``image``, ``segmentation``, ``regression_target``, ``keypoints``, ``bbox``.

    Subclasses implement `change`; those that have params also `draw`, those whose output has another shape than their
    input also `output_shapes`.

    Attributes:
        keys: the caller's name -> the role of its array, or None where it is left as it is (see `Compose`).
    """

    keys: Mapping[str, str | None] = MappingProxyType({})

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
            ValueError: an array of the image's spatial shape under a key that is neither known nor in `keys`, or one that
                has not as many axes as the transform is made for.
        """
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
        if is_batch(arrays, self.keys):
            return apply_to_batch(self, arrays, rng)
        roles = sample_roles(arrays, self.keys)
        return self.of_sample(arrays, roles, rng if rng is not None else _generator_of_this_sample(type(self).__name__))

    def of_sample(
        self, arrays: Mapping[str, Any], roles: Mapping[str, str], rng: np.random.Generator
    ) -> dict[str, Any]:
        """Sample params for one sample, of whose arrays the roles are known, and apply them."""
        return self._applied(arrays, roles, lambda shapes: self.sample(rng, shapes))

    def sample(self, rng: np.random.Generator, shapes: Shapes) -> Params:
        """Draw params.

        Args:
            shapes: ``{"image": (C, X, Y[, Z]), ...}`` of what the transform will be applied to, by role.
        """
        for wanted in vars(self).values():
            if callable(wanted) and draws.wants_image(wanted):
                return {_DEFERRED: draws.key(rng)}
        return self.draw(rng, shapes, {})

    def apply(self, arrays: Mapping[str, Any], params: Params) -> dict[str, Any]:
        """Apply params to a sample's arrays; the given arrays are unchanged. Raises as `__call__`."""
        return self._applied(arrays, sample_roles(arrays, self.keys), lambda _: params)

    def _applied(
        self, arrays: Mapping[str, Any], roles: Mapping[str, str], params_for: Callable[[Shapes], Params]
    ) -> dict[str, Any]:
        check_dimensions(arrays, roles, self.spatial_dims())

        def transformed(sample: dict[str, Any]) -> dict[str, Any]:
            workspace = Workspace(sample)
            self.apply_in(workspace, params_for(workspace.shapes()))
            return workspace.result()

        return by_role(arrays, roles, transformed)

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        """Apply params to what is in a workspace."""
        if _DEFERRED in params:
            # a user's callable wants the image: only now is there one
            rng = draws.generator_of(params[_DEFERRED])
            params = self.draw(rng, workspace.shapes(), {"image": workspace.get("image")})
        self.change(workspace, params)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        """The shapes after the transform."""
        return dict(shapes)

    def spatial_dims(self) -> int | None:
        """How many spatial axes samples must have, 2 or 3; None: the transform takes both."""
        return None

    def kernels(self) -> Iterable[Kernel]:
        """The compiled kernels that the transform may call."""
        return ()

    def warm_up(self) -> None:
        """Compile all kernels that the transform may call, or load them from the cache."""
        for each in self.kernels():
            each.compile()

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        """Draw params; without this method there are none. ``context`` holds the image where a user's callable takes it;
        else it is empty."""
        return {}

    @abstractmethod
    def change(self, workspace: Workspace, params: Params) -> None:
        """Apply params in a workspace."""

    def __repr__(self) -> str:
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in public.items())})"


class ImageTransform(Transform):
    """A transform of ``image`` alone; without an image it draws nothing and does nothing."""

    def sample(self, rng: np.random.Generator, shapes: Shapes) -> Params:
        return super().sample(rng, shapes) if shapes.get("image") is not None else {}

    def apply_in(self, workspace: Workspace, params: Params) -> None:
        if "image" in workspace:
            super().apply_in(workspace, params)


def _generator_of_this_sample(name: str) -> np.random.Generator:
    try:
        batch = current()
    except RuntimeError:
        raise RuntimeError(
            f"{name} was called without rng= and outside a DeterministicAugmenter. Pass the Generator to draw from, for "
            f"example {name}(...)(image=image, rng=detaug.SeedTree(seed).generator(epoch, step, sample=0)). There is no "
            "fall-back to a global random state."
        ) from None
    return batch.next_sample_generator()


# Their public home: modules in here may be rebuilt.
Transform.__module__ = ImageTransform.__module__ = "detaug.transforms"
