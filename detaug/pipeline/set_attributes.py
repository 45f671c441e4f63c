"""The attributes that a program may set on a pipeline while it runs: ``dataset.stage = 2``."""

from __future__ import annotations

import functools
import types
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.objects.attributes_in_code import ANY, changed_attributes, is_called_by_others
from detaug.objects.description import is_mapped
from detaug.objects.references import is_the_users_own
from detaug.objects.tensor_pickling import has_plain_memory
from detaug.objects.values import ValuePath, digest_of, is_table, values_in
from detaug.objects.variables import PipelineCode, has_settings
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.undeclared_values import (
    NOT_COMPARED,
    has_texts,
    hashed,
    is_compared,
    is_detaugs,
)

#: How many objects are searched for attributes that a program has set.
_MOST_SETTINGS = 1_000
#: Bytes. Larger arrays are data, and not set from batch to batch.
_LARGEST_SETTING = 65_536
#: A program sets attributes of the objects that they keep, and not what they keep.
_LEADING_TO_OBJECTS = (types.FunctionType, types.MethodType, functools.partial)
_NUMBER_OR_TEXT = (int, float, complex, str, bytes, type(None))


class _Attribute(NamedTuple):
    """The attribute that a value is, or lies in.

    Attributes:
        owner: the path of the object that has it.
        kind: that object's class.
        name: the attribute.
        is_plain: it is a number or a text, so that it can only be set.
    """

    owner: str
    kind: type
    name: str
    is_plain: bool


class Settings:
    """The attributes of a pipeline that a program may set, as texts by path, at one moment.

    They are those that the code which makes batches does not change. What code does is looked at
    for attributes that differ only, because a library's classes have many methods.

    Args:
        pristine: the pipeline.
    """

    def __init__(self, pristine: PipelineSnapshot) -> None:
        self.texts: dict[str, str] = {}
        self._attributes: dict[str, _Attribute] = {}
        source = pristine.source
        roots = {
            "data_loader": source.loader,
            "transform": pristine.transform,
            **source.originals(),
        }
        values = values_in(roots.items(), self._is_opened, _digest_of_little, most=_MOST_SETTINGS)
        for path, value in values:
            if path in self._attributes and not is_detaugs(value.holder):
                self.texts[path] = value.text

    def _is_opened(self, path: ValuePath, value: Any) -> bool:
        holder = path.holder
        if holder is None:
            return is_compared(path, value)
        if isinstance(holder, (type, types.ModuleType)):
            # Their variables are shared by all copies, and compared.
            return False
        if isinstance(holder, _LEADING_TO_OBJECTS):
            return is_compared(path, value) and not isinstance(value, _NUMBER_OR_TEXT)
        name = path.attribute.removeprefix(".")
        is_item = path != f"{path.owner}{path.attribute}"
        is_plain = isinstance(value, _NUMBER_OR_TEXT) and not is_item
        attribute = _Attribute(path.owner, type(holder), name, is_plain)
        self._attributes[str(path)] = attribute
        if isinstance(value, (list, tuple, deque)):
            # A dict's length is left out: dicts grow where they are caches.
            self._attributes[f"{path}.len()"] = attribute
        return is_compared(path, value)

    def is_programs(self, path: str, code: PipelineCode) -> bool:
        """Return whether code that makes batches reads the value at a path, and changes it nowhere.

        Args:
            path: the path.
            code: the pipeline's.
        """
        if path in self._attributes and _is_unread(self._attributes[path], code):
            return False
        while path in self._attributes:
            attribute = self._attributes[path]
            if _is_changed_by_batches(attribute, code):
                return False
            path = attribute.owner
        return True


def _is_unread(attribute: _Attribute, code: PipelineCode) -> bool:
    if not has_settings(attribute.kind):
        return False
    return attribute.name.isidentifier() and not code.may_read(attribute.kind, attribute.name)


def _is_changed_by_batches(attribute: _Attribute, code: PipelineCode) -> bool:
    is_set, is_written = changed_attributes(attribute.kind)
    methods = {*is_set.get(attribute.name, ()), *is_set.get(ANY, ())}
    if not attribute.is_plain:
        methods |= is_written.get(attribute.name, set())
    if not is_the_users_own(attribute.kind):
        # Which of its methods are called is not known.
        return bool(methods)
    kind = attribute.kind
    return any(method in code or is_called_by_others(kind, method) for method in methods)


def _digest_of_little(value: Any) -> str:
    """Return the digest of a small array or container; of a larger one `NOT_COMPARED`."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        is_small = has_plain_memory(value) if isinstance(value, torch.Tensor) else True
        if is_small and value.nbytes <= _LARGEST_SETTING and not is_mapped(value):
            return digest_of(value)
        return NOT_COMPARED
    if is_table(value) or len(value) > _MOST_SETTINGS or not has_texts(value):
        return NOT_COMPARED
    return hashed(repr(sorted(map(repr, value)) if isinstance(value, (set, frozenset)) else value))
