"""``module:factory`` or ``path/to/file.py:factory`` → the factory."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import cloudpickle

from detaug.errors import UnusableError
from detaug.verification.handed_in import Factory, users_code


def load_factory(target: str) -> Factory:
    """The factory that a command line names.

    Modules are looked for in the current folder as well; a file's own folder is put on the import path, as Python does
    for a script.

    Raises:
        UnusableError: there is no such module, file or factory; the message says which.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise UnusableError(f"{target!r} is not of the form module:factory or path/to/file.py:factory")
    with users_code(f"{place}, when it is imported,"):
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = sorted(each for each, value in vars(module).items() if callable(value) and each[0] != "_")
            raise UnusableError(f"there is no {name!r} in {place}; it has {', '.join(names) or 'no callable'}")
        found = getattr(found, part)
    if not callable(found):
        raise UnusableError(f"{target} is not callable: it is {found!r}")
    return found


def _from_name(name: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UnusableError(f"there is no module {name!r} here or on the import path") from error


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise UnusableError(f"there is no file {str(file)!r}")
    file = file.resolve()
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    taken = file.stem in sys.modules or file.stem in sys.stdlib_module_names
    name = f"detaug_verified_{file.stem}" if taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UnusableError(f"{str(file)!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if taken:  # other interpreters cannot import it under that name
        cloudpickle.register_pickle_by_value(module)
    return module
