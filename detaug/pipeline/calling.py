"""How a transform takes a batch: as keyword arguments, as one dict, or as positional arguments."""

from __future__ import annotations

from typing import Any

#: ``transform(batch)``, ``transform(**batch)``, ``transform(*batch)``.
WAYS = ("dict", "kwargs", "args")
#: Libraries whose transforms take a dict, wherever their own code is what is called.
_OF_DICTS = ("monai", "torchvision", "torchio")
#: The class whose subclasses take one, by contract.
_CONTRACT = "monai.transforms.transform.MapTransform"


def called(transform: Any, way: str | None) -> Any:
    """A transform that takes a dict as keyword arguments and anything else as its one argument, as
    an augmenter calls it.

    Args:
        transform: the user's; None for none.
        way: one of `WAYS`; None: "dict" for transforms of libraries that are known to take one,
            else "kwargs".
    """
    if transform is None or way == "kwargs" or (way is None and not takes_a_dict(type(transform))):
        return transform
    return AsPositional(transform) if way == "args" else AsDict(transform)


def takes_a_dict(kind: type) -> bool:
    """Whether calls of this class's instances end in such a library's code."""
    names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    if _CONTRACT in names:
        return True
    method = "forward" if "torch.nn.modules.module.Module" in names else "__call__"
    defined_by = next((base for base in kind.__mro__ if method in vars(base)), object)
    return defined_by.__module__.partition(".")[0] in _OF_DICTS


class AsDict:
    """A transform of one dict, called with keyword arguments."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self.__qualname__ = transform_name(transform)

    def __call__(self, *items: Any, **batch: Any) -> Any:
        return self.transform(batch) if not items else self.transform(*items)


class AsPositional(AsDict):
    """A transform of several arguments: the items of a list or tuple, the values of a dict in their
    order.
    """

    def __call__(self, *items: Any, **batch: Any) -> Any:
        if batch:
            return self.transform(*batch.values())
        (item,) = items
        return self.transform(*item) if isinstance(item, (list, tuple)) else self.transform(item)


def transform_name(transform: Any) -> str:
    """For messages: a function's name, else its class's."""
    return str(getattr(transform, "__qualname__", type(transform).__name__))
