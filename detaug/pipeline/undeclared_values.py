"""The values that batches may depend on and that no parameter declares, as short texts.

Left out are values that differ between two correct runs, or are too large to look at:
- generators, which are seeded for every batch;
- memory maps, arrays of more than a few MB, and what lies on a GPU: they are data;
- numbers and texts that are the time, the process, an address, the machine or a cluster's job, but
  for seeds that batches are made with;
- arrays that a method overwrites as a whole, or that a constructor leaves as `numpy.empty` does:
  memory to work in, which may begin with anything;
- attributes that only constructors and reports name, and no code that makes batches;
- private attributes of libraries' objects, where these keep what they have computed, but for
  arrays;
- objects of the standard library that hold no settings: locks, loggers, compiled patterns.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
import types
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Iterable, Mapping
from configparser import RawConfigParser, SectionProxy
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
import xxhash

from detaug.objects.attributes_in_code import (
    is_called_by_others,
    overwritten_attributes,
    uninitialised_attributes,
)
from detaug.objects.description import is_mapped
from detaug.objects.of_this_process import is_identifier_of_run, is_of_this_process
from detaug.objects.references import is_the_users_own, is_users_module
from detaug.objects.stored import stored_arrays
from detaug.objects.tensor_pickling import has_plain_memory
from detaug.objects.values import GETTERS, Value, ValuePath, digest_of, is_table, values_in
from detaug.objects.variables import PipelineCode, has_settings, variables_of
from detaug.objects.walking import Edge, walk
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.seeding.generators import GENERATORS

#: How many objects are looked at.
_MOST_OBJECTS = 5_000
#: How many values are looked at.
_MOST_LOOKED_AT = 20_000
#: How many values are kept.
_MOST_KEPT = 400
#: Bytes. Larger arrays are data, and so are all once this much was read.
_LARGEST_ARRAY = 4 * 2**20
_MOST_BYTES = 32 * 2**20
#: How many objects are asked for what they store.
_MOST_STORED = 32
#: Of longer lists and dicts of plain values, and of larger tables, only the length is compared.
_MOST_ITEMS = 100_000
#: Attributes with more values than this are kept as one digest.
_MOST_OF_ATTRIBUTE = 32
#: The text of a path or an address: it begins with a folder, or ends with a file's suffix.
_PATH = re.compile(r"""['"](/|\.\.?/|~|[A-Za-z]:|[\w+]+://|.*/.*\.\w{1,6}(['"]|… ))""")
#: A text with a slash, as `repr` writes it.
_QUOTED = re.compile(r"'[^']*/[^']*'")
#: An item of a list, or of a dict whose keys are integers.
_AT_INDEX = re.compile(r"\[\d+\]")
#: A text's folders except the last one: ``'/data/a/b.nii'`` is ``'a/b.nii'`` on every machine.
_FOLDERS = re.compile(r"(?<=['\"])[^'\"]*/(?=[^'\"/]*/[^'\"/]*['\"])")
#: torch's modules keep what they learn in these.
_OF_MODULES = ("._parameters", "._buffers", "._modules")
_PLAIN = (
    bytes,
    bytearray,
    complex,
    type(None),
    np.ndarray,
    torch.Tensor,
    PurePath,
    array,
    Decimal,
    Fraction,
    timedelta,
    range,
    slice,
    type,
    types.BuiltinFunctionType,
)
#: Classes of set items: the text of such an item is the same in every process.
_WITH_TEXT = (str, bytes, int, float, complex, type(None))
_CONTAINERS = (dict, list, tuple, deque, set, frozenset, UserDict, UserList, ChainMap)
#: Classes of Python's own whose instances hold a program's settings, or lead to its objects.
_SETTINGS = (
    argparse.Namespace,
    types.SimpleNamespace,
    types.MappingProxyType,
    types.MethodType,
    functools.partial,
    RawConfigParser,
    SectionProxy,
)
#: Libraries whose objects count what the program does.
_OF_PROGRESS = ("tqdm", "tensorboard", "tensorboardX", "wandb", "mlflow", "rich", "loguru")
#: Libraries whose objects are functions, with what was compiled of them so far.
_OF_COMPILERS = ("numba",)


def code_of(pristine: PipelineSnapshot) -> PipelineCode:
    """Return a pipeline's code, with that of closures and of modules that objects have."""
    code = []
    for _, value in walk(_roots(pristine), _MOST_OBJECTS):
        if isinstance(value, (types.FunctionType, types.ModuleType)):
            code.append(value)
    return PipelineCode([*pristine.references(), *code])


def variables_in(code: PipelineCode) -> dict[str, str]:
    """Return the variables that code reads and does not write itself, by path, as texts."""
    return _texts_of(variables_of(code.references, written=False), code)


def attributes_of_pipeline(pristine: PipelineSnapshot, code: PipelineCode) -> dict[str, str]:
    """Return the attributes of the loader, the transforms and the source's parts, as texts."""
    return _texts_of(_roots(pristine), code)


def _roots(pristine: PipelineSnapshot) -> list[Edge]:
    source = pristine.source
    parts = {"data_loader": source.loader, "transform": pristine.transform}
    return list({**parts, **source.declared_parts()}.items())


def _texts_of(roots: Iterable[Edge], code: PipelineCode) -> dict[str, str]:
    texts: dict[str, str] = {}
    for (path, _, _), group in _by_attribute(roots, code).items():
        if len(group) > _MOST_OF_ATTRIBUTE or _lists_files(group):
            # One digest keeps state dicts small; a message can still name the attribute.
            texts[path] = f"{len(group)} values, {_digest_of_group(group)}"
            continue
        for value_path, value in group.items():
            texts[value_path] = value.text
    return _shortened(texts)


def _lists_files(group: Mapping[str, Value]) -> bool:
    """Return whether an attribute holds a list of paths: their names and order are data."""
    num_paths = 0
    for path, value in group.items():
        if _AT_INDEX.search(path) and is_path(value.text):
            num_paths += 1
    return num_paths > 1


def _digest_of_group(group: Mapping[str, Value]) -> str:
    contents = [(path, value.text) for path, value in group.items()]
    return hashed(_below_common_folder(repr(contents)))


def _below_common_folder(text: str) -> str:
    """Return a text in which paths begin below the folder that all of them lie in.

    The same files may lie in another folder on another machine.
    """
    folders = [os.path.dirname(path) for path in _QUOTED.findall(text) if is_path(path)]
    if not folders:
        return text
    # They begin with the quotation mark, so none counts as absolute.
    common = os.path.commonpath(folders)
    if not common:
        return text
    return text.replace(common, "'")


def is_path(text: str) -> bool:
    """Return whether the text of a value is a path: it begins with a folder, or ends in a file."""
    return bool(_PATH.match(text))


def _by_attribute(
    roots: Iterable[Edge], code: PipelineCode
) -> dict[tuple[str, str, str], dict[str, Value]]:
    """Return values by path, grouped by the attribute (or the root) that they lie in."""
    groups: dict[tuple[str, str, str], dict[str, Value]] = {}
    # One reader for all roots, because it limits the bytes that are read in total.
    reader = _Reader()

    def is_looked_at(path: ValuePath, value: Any) -> bool:
        if isinstance(value, np.random.SeedSequence):
            return _is_used_by_batches(path, code)
        if _is_seed_in_use(path, value, code):
            return True
        if not is_compared(path, value) or _is_unread(path, code):
            return False
        return not _is_working_memory(path, value, code)

    for root in roots:
        values = values_in(
            [root],
            is_looked_at,
            reader.digest,
            most=_MOST_OBJECTS,
            keys=True,
            stored=reader.stored,
        )
        for path, value in islice(values, _MOST_LOOKED_AT):
            if is_detaugs(value.holder):
                # Its own attributes are declared.
                continue
            attribute = f"{value.owner}{value.attribute}" or root[0]
            group = groups.setdefault((attribute, root[0], value.owner), {})
            group[path] = value
    return groups


def _shortened(texts: dict[str, str]) -> dict[str, str]:
    """Return the first values, and one that stands for the rest."""
    if len(texts) <= _MOST_KEPT:
        return texts
    items = list(texts.items())
    rest = items[_MOST_KEPT:]
    kept = dict(items[:_MOST_KEPT])
    # The number is in the path, because another version may look at more values.
    kept[f"the other {len(rest)} values"] = hashed(without_folders(repr(rest)))
    return kept


def is_compared(path: ValuePath, value: Any) -> bool:
    """Return whether a value is to be compared, or leads to values that are."""
    # A part without a name (".~0") may have another number in another process.
    if isinstance(value, GENERATORS) or path.attribute.startswith(".~"):
        return False
    if _is_a_librarys(path, value):
        return False
    if is_of_this_process(value) or is_identifier_of_run(path.attribute.removeprefix("."), value):
        return False
    if isinstance(value, (int, float, str, np.integer, np.floating)):
        return True
    if isinstance(value, (*_PLAIN, *_CONTAINERS, *_SETTINGS, *GETTERS)):
        return True
    return _is_compared_object(value)


def _is_a_librarys(path: ValuePath, value: Any) -> bool:
    """Return whether an attribute belongs to an object of a library, which writes it by itself."""
    holder = path.holder
    if holder is None or is_the_users_own(holder):
        return False
    if path.attribute.startswith("._") and path.attribute not in _OF_MODULES:
        return not _has_arrays(value)
    if isinstance(holder, (types.ModuleType, type, *_SETTINGS)):
        return False
    # Empty until the object is called, as the params of albumentations' transforms are.
    return isinstance(value, _CONTAINERS) and not value


def _has_arrays(value: Any) -> bool:
    """Return whether a private attribute may hold what a constructor was given, and no cache.

    Other tuples may have memory to work in, as the splines of FITPACK have.
    """
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, (np.ndarray, torch.Tensor)) for item in items)


def _is_working_memory(path: ValuePath, value: Any, code: PipelineCode) -> bool:
    """Return whether an array may begin with anything, since batches write to it before they read.

    The code that makes batches overwrites it as a whole; or it is as `numpy.empty` has made it, and
    no other code fills it.
    """
    if path.holder is None or not isinstance(value, (np.ndarray, torch.Tensor)):
        return False
    kind: Any = type(path.holder)
    name = path.attribute.removeprefix(".")
    writers = overwritten_attributes(kind).get(name, ())
    readers = uninitialised_attributes(kind).get(name, ())
    if not writers and not readers:
        return False

    def makes_batches(method: str) -> bool:
        return is_called_by_others(kind, method) or method in code

    if any(map(makes_batches, writers)):
        return True
    return bool(readers) and all(map(makes_batches, readers))


def _is_unread(path: ValuePath, code: PipelineCode) -> bool:
    """Return whether a value is an attribute of a user's object that no batch depends on.

    A namespace has all arguments of a program: batches depend on some.
    """
    holder = path.holder
    name = path.attribute.removeprefix(".")
    if holder is None or not name.isidentifier():
        return False
    if isinstance(holder, (type, types.ModuleType, types.FunctionType)):
        return False
    if not has_settings(type(holder)):
        return False
    return not code.may_read(type(holder), name)


def _is_seed_in_use(path: ValuePath, value: Any, code: PipelineCode) -> bool:
    """Return whether an attribute is a seed that decides batches: it may be a time or a number.

    A seed that only a constructor uses decides none, because generators are seeded for every batch.
    """
    if "seed" not in path.attribute.lower() or not isinstance(value, (int, np.integer, str)):
        return False
    return _is_used_by_batches(path, code)


def _is_used_by_batches(path: ValuePath, code: PipelineCode) -> bool:
    """Return whether code of the user's, other than constructors, uses an attribute."""
    holder = path.holder
    if holder is None or not is_the_users_own(holder):
        return False
    return path.attribute.removeprefix(".") in code


def _is_compared_object(value: Any) -> bool:
    """Return whether an object that is no plain value leads to some that are to be compared."""
    if isinstance(value, types.FunctionType):
        return is_the_users_own(value)
    module = type(value).__module__
    if is_users_module(module):
        return True
    top = module.partition(".")[0]
    return top not in sys.stdlib_module_names and top not in (*_OF_PROGRESS, *_OF_COMPILERS)


def is_detaugs(holder: Any) -> bool:
    """Return whether an object is of a class of detaug's."""
    return type(holder).__module__.startswith("detaug.")


class _Reader:
    """Digests of arrays, tables and long containers, of a bounded number of bytes in all."""

    def __init__(self) -> None:
        self._room = _MOST_BYTES
        self._num_stored = 0

    def stored(self, value: Any) -> list[np.ndarray]:
        """Return the arrays that an object stores and shows in no attribute.

        Of more than a few objects they are data: images, for example.
        """
        if self._num_stored == _MOST_STORED:
            return []
        arrays = stored_arrays(value)
        if arrays:
            self._num_stored += 1
        return arrays

    def digest(self, value: Any) -> str:
        """Return a digest; for data a text, `NOT_COMPARED`."""
        if isinstance(value, (np.ndarray, torch.Tensor)):
            return self._digest_of_array(value)
        if is_table(value):
            return _digest_of_table(value)
        if len(value) > _MOST_ITEMS:
            return NOT_COMPARED
        if isinstance(value, (set, frozenset)):
            if not has_texts(value):
                return NOT_COMPARED
            # Sorted: a set's order differs from process to process.
            value = sorted(map(repr, value))
        return hashed(_below_common_folder(repr(value)))

    def _digest_of_array(self, array: Any) -> str:
        # Sparse, nested and quantised tensors, and those on a GPU, have no bytes to be read.
        if isinstance(array, torch.Tensor) and not has_plain_memory(array):
            return NOT_COMPARED
        size = array.nbytes
        if size > min(_LARGEST_ARRAY, self._room) or is_mapped(array):
            return NOT_COMPARED
        self._room -= size
        return digest_of(array)


#: The digest of data.
NOT_COMPARED = "(not compared)"


def _digest_of_table(table: Any) -> str:
    if table.size > _MOST_ITEMS:
        return NOT_COMPARED
    return digest_of(table)


def has_texts(items: Iterable[Any]) -> bool:
    """Return whether all items have a text that is the same in every process."""
    return all(isinstance(item, _WITH_TEXT) for item in items)


def without_folders(text: str) -> str:
    """Return a text in which paths of files are shortened to what is the same on every machine."""
    return _FOLDERS.sub("", text)


def hashed(text: str) -> str:
    """Return a short digest of a text."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))[:12]
