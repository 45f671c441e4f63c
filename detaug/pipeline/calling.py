"""An adapter for transforms that take a batch as one dict."""

from __future__ import annotations

from typing import Any

#: The call ``transform(batch)``, and the call ``transform(**batch)``.
WAYS = ("dict", "kwargs")
#: Libraries whose transforms take a dict, wherever their own code is what is called.
_OF_DICTS = ("monai", "torchvision", "torchio")
#: The class whose subclasses take one, by contract.
_CONTRACT = "monai.transforms.transform.MapTransform"


def called(transform: Any, way: str | None) -> Any:
    """Return a transform that an augmenter can call.

    An augmenter passes a dict as keyword arguments, and anything else as the one argument.

    Args:
        transform: the user's, or None.
        way: one of `WAYS`. None is "dict" for transforms of libraries that are known to take one,
            else "kwargs".
    """
    if transform is None or way == "kwargs":
        return transform
    if way is None and not takes_a_dict(type(transform)):
        return transform
    return AsDict(transform)


def takes_a_dict(kind: type) -> bool:
    """Return whether calls of this class's instances end in the code of such a library."""
    names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    if _CONTRACT in names:
        return True
    method = "forward" if "torch.nn.modules.module.Module" in names else "__call__"
    for base in kind.__mro__:
        # The class that defines the method decides: a user's subclass may take the items as
        # keyword arguments.
        if method in vars(base):
            return base.__module__.partition(".")[0] in _OF_DICTS
    return False


class AsDict:
    """A transform of one dict, called with keyword arguments."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self.__qualname__ = transform_name(transform)

    def __call__(self, *items: Any, **batch: Any) -> Any:
        if items:
            return self.transform(*items)
        return self.transform(batch)


def transform_name(transform: Any) -> str:
    """Return a function's name, or an object's class, for messages."""
    return str(getattr(transform, "__qualname__", type(transform).__name__))
