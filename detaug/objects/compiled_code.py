"""What compiled code reads and writes: variables of modules and closures, attributes, items.

The text of the code may be missing, so its instructions are looked at, as `dis` shows them.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

SUBSCRIPT = "[]"
#: Methods that change the container or object that they belong to.
_CHANGING = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
        "put",
        "remove",
        "set",
        "setdefault",
        "sort",
        "update",
    )
)
#: Functions of NumPy and torch that return memory as it was.
_UNINITIALISED = ("empty", "empty_like")
_LOADS_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
#: Methods that write all of an array.
_OVERWRITING = ("copy_", "fill", "fill_", "zero_")


class Read(NamedTuple):
    """A read of a global or of an imported module, with the attributes and items that are taken.

    Attributes:
        root: the name of the global, or of the module.
        is_module: it is a module's name.
        level: of a relative import; 0 of an absolute one.
        steps: attributes ``(".", name)`` and items ``("[]", key)``, in order.
    """

    root: str
    is_module: bool
    level: int
    steps: tuple[tuple[str, Any], ...]


class Writes(NamedTuple):
    """The variables that a function writes.

    Attributes:
        of_globals: globals, and values in them.
        of_owner: values in attributes of its first argument.
    """

    of_globals: tuple[Read, ...]
    of_owner: tuple[Read, ...]


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield compiled code, and that of the functions and classes that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


@lru_cache(maxsize=4096)
def variables_set_in(code: types.CodeType) -> frozenset[str]:
    """Return the variables of the closure that compiled code sets."""
    names = set()
    for instruction in instructions_of(code):
        if instruction.opname in ("STORE_DEREF", "DELETE_DEREF"):
            names.add(instruction.argval)
    return frozenset(names)


@lru_cache(maxsize=4096)
def reads_in(code: types.CodeType) -> tuple[Read, ...]:
    """Return the reads of globals, and of modules that it imports, in compiled code."""
    return tuple(read for read, _ in _loads_in(instructions_of(code)))


@lru_cache(maxsize=4096)
def writes_in(code: types.CodeType) -> Writes:
    """Return the writes in compiled code."""
    instructions = instructions_of(code)
    of_globals = []
    for instruction in instructions:
        if instruction.opname == "STORE_GLOBAL":
            of_globals.append(Read(instruction.argval, False, 0, ()))
    for read, end in _loads_in(instructions):
        target = _target(read, instructions, end)
        if target is not None:
            of_globals.append(target)
    of_owner = []
    owner = code.co_varnames[0] if code.co_argcount else None
    for index, instruction in enumerate(instructions):
        if owner is not None and _loaded_variable(instruction) == owner:
            steps, end = _steps_in(instructions, index + 1)
            read = Read(str(owner), False, 0, steps)
            target = _target(read, instructions, end)
            # An attribute that is set is the object's own, and not its class's.
            if target is not None and target.steps and not _is_set(instructions, end):
                of_owner.append(target)
    return Writes(tuple(of_globals), tuple(of_owner))


def overwritten_in(code: types.CodeType) -> Iterator[str]:
    """Yield the attributes of the first argument whose whole contents compiled code writes."""
    owner = code.co_varnames[0] if code.co_argcount else None
    instructions = instructions_of(code)
    for index, instruction in enumerate(instructions):
        is_owner = owner is not None and _loaded_variable(instruction) == owner
        if not is_owner or index + 1 == len(instructions):
            continue
        attribute = instructions[index + 1]
        # `_overwrites` looks at four instructions at most.
        following = instructions[index + 2 : index + 6]
        if attribute.opname == "LOAD_ATTR" and _overwrites(code, following):
            yield attribute.argval


def attributes_set_to_empty(instructions: list[dis.Instruction]) -> Iterator[str]:
    """Yield the attributes that ``self.name = numpy.empty(...)`` and its like set."""
    #: The instructions of the statement so far.
    statement: list[dis.Instruction] = []
    for instruction in instructions:
        if not instruction.opname.startswith(("STORE_", "POP_TOP", "RESUME")):
            statement.append(instruction)
            continue
        if instruction.opname == "STORE_ATTR" and _is_call_of_empty(statement):
            yield instruction.argval
        statement = []


def _is_call_of_empty(statement: list[dis.Instruction]) -> bool:
    """Return whether a statement loads what a call of ``empty`` returns, and then an object."""
    loads = [step for step in statement if step.opname not in ("PUSH_NULL", "PRECALL", "KW_NAMES")]
    if len(loads) < 4 or not loads[-1].opname.startswith("LOAD_FAST"):
        return False
    if not loads[-2].opname.startswith("CALL"):
        return False
    for step, following in pairwise(loads):
        if step.opname.startswith("CALL") and following.opname in _LOADS_OF_ATTRIBUTES:
            # A method of the array is called.
            return False
    # `np.empty(...)`, or `empty(...)` after `from numpy import empty`.
    called = loads[0]
    if loads[1].opname in _LOADS_OF_ATTRIBUTES:
        called = loads[1]
    return called.argval in _UNINITIALISED


def attributes_loaded(instructions: list[dis.Instruction]) -> Iterator[str]:
    """Yield the names of the attributes that instructions read, of whichever object."""
    for instruction in instructions:
        if instruction.opname in _LOADS_OF_ATTRIBUTES:
            yield instruction.argval


def _overwrites(code: types.CodeType, following: list[dis.Instruction]) -> bool:
    """Return whether instructions write the whole contents of the array that was loaded before."""
    names = [instruction.opname for instruction in following]
    if not names:
        return False
    first = following[0].argval
    if names[0] in ("LOAD_ATTR", "LOAD_METHOD"):
        return first in _OVERWRITING
    if names[0] == "KW_NAMES" or names[1:2] == ["CALL_KW"]:
        # It is the value of the last keyword. Python 3.11 does not show KW_NAMES' argument.
        keywords = code.co_consts[following[0].arg or 0]
        return isinstance(keywords, tuple) and keywords[-1:] == ("out",)
    if names[:2] == ["LOAD_CONST", "STORE_SUBSCR"]:
        return first in (Ellipsis, slice(None))
    # `array[:] = x` loads None twice, and stores by one instruction from Python 3.12 on, by two
    # before.
    constants = [instruction.argval for instruction in following[:2]]
    if constants != [None, None]:
        return False
    return names[2:3] == ["STORE_SLICE"] or names[2:4] == ["BUILD_SLICE", "STORE_SUBSCR"]


def reads_by_text(code: types.CodeType, function: types.FunctionType) -> Iterator[Read]:
    """Yield reads of globals and modules' variables that code names by a text.

    ``globals()["NAME"]``, ``getattr(module, "NAME")``.
    """
    texts = [constant for constant in code.co_consts if isinstance(constant, str)]
    variables = function.__globals__
    if "globals" in code.co_names:
        for text in texts:
            if text in variables:
                yield Read(text, False, 0, ())
    if "getattr" not in code.co_names:
        return
    for read in reads_in(code):
        module = None if read.is_module or read.steps else variables.get(read.root)
        if not isinstance(module, types.ModuleType):
            continue
        for text in texts:
            if text in vars(module):
                yield read._replace(steps=((".", text),))


def instructions_of(code: types.CodeType) -> list[dis.Instruction]:
    """Return the instructions of compiled code, without the interpreter's caches."""
    return [step for step in dis.get_instructions(code) if step.opname != "CACHE"]


def _loads_in(instructions: list[dis.Instruction]) -> Iterator[tuple[Read, int]]:
    """Yield each load of a global or imported module, and the index of the instruction after it."""
    imported: dict[str, Read] = {}
    for index, instruction in enumerate(instructions):
        name = instruction.opname
        argument = instruction.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            steps, end = _steps_in(instructions, index + 1)
            yield Read(argument, False, 0, steps), end
        elif name == "IMPORT_NAME":
            # Two instructions before it load the level of a relative import and the names.
            level = instructions[index - 2].argval
            imported.update(_imported_by(argument, level, instructions[index + 1 :]))
        elif name.startswith("LOAD_FAST"):
            variable = _loaded_variable(instruction)
            if variable in imported:
                read = imported[variable]
                steps, end = _steps_in(instructions, index + 1)
                yield read._replace(steps=(*read.steps, *steps)), end


def _loaded_variable(instruction: dis.Instruction) -> str:
    """Return the local variable that an instruction loads; empty if it loads none.

    Of a pair of loads in one instruction (Python 3.13) it is the last, of which attributes are
    taken.
    """
    if not instruction.opname.startswith("LOAD_FAST"):
        return ""
    if isinstance(instruction.argval, tuple):
        return str(instruction.argval[-1])
    return str(instruction.argval)


def _is_set(instructions: list[dis.Instruction], index: int) -> bool:
    return index < len(instructions) and instructions[index].opname == "STORE_ATTR"


def _target(read: Read, instructions: list[dis.Instruction], index: int) -> Read | None:
    """Return the part of a value, loaded before an instruction, that is written; or None."""
    if _is_set(instructions, index):
        attribute = (".", instructions[index].argval)
        return read._replace(steps=(*read.steps, attribute))
    # A method that changes its object is called, as in `CACHE.append(x)`.
    if read.steps and read.steps[-1][1] in _CHANGING:
        return read._replace(steps=read.steps[:-1])
    if _is_item_set(instructions, index):
        return read
    return None


def _is_item_set(instructions: list[dis.Instruction], index: int) -> bool:
    """Return whether an item of the value that was loaded before an instruction is set.

    When the item is stored the value is on the stack, and the key above it.
    """
    depth = 1
    for instruction in instructions[index:]:
        if instruction.opname == "STORE_SUBSCR":
            return depth == 2
        is_pair_copied = instruction.opname == "COPY" and instruction.arg == 2
        if depth == 2 and (is_pair_copied or instruction.opname == "DUP_TOP_TWO"):
            # `x[key] += 1` copies the value and the key.
            return True
        is_jump = "JUMP" in instruction.opname or instruction.opname.startswith("RETURN")
        is_copied = depth == 1 and instruction.opname == "COPY"
        if is_jump or is_copied:
            return False
        depth += dis.stack_effect(instruction.opcode, instruction.arg)
        if depth < 1:
            return False
    return False


def _imported_by(module: str, level: int, rest: list[dis.Instruction]) -> Iterator[Any]:
    """Yield the local variables that an import statement sets, each with the read it stands for."""
    steps: tuple[tuple[str, Any], ...] = ()
    root = module
    for instruction in rest:
        if instruction.opname == "IMPORT_FROM":
            steps = ((".", instruction.argval),)
        elif instruction.opname.startswith("STORE_FAST"):
            argument = instruction.argval
            # STORE_FAST_LOAD_FAST and its like (Python 3.13) have the stored variable first.
            variable = argument if isinstance(argument, str) else argument[0]
            top = module.partition(".")[0]
            if not steps and "." in module and variable == top:
                # `import a.b` binds a.
                root = variable
            yield variable, Read(root, True, level, steps)
            if not steps:
                return
        elif instruction.opname not in ("SWAP", "POP_TOP", "COPY"):
            return


def _steps_in(
    instructions: list[dis.Instruction], start: int
) -> tuple[tuple[tuple[str, Any], ...], int]:
    """Return the attributes and items that are taken of the value loaded before an instruction.

    Returns:
        The steps, and the index of the instruction after them.
    """
    steps: list[tuple[str, Any]] = []
    index = start
    while index < len(instructions):
        instruction = instructions[index]
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            steps.append((".", instruction.argval))
            index += 1
            continue
        is_key = instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
        if not is_key or index + 1 == len(instructions):
            break
        if not _is_subscript(instructions[index + 1]):
            break
        # Other keys cannot be written in a path.
        if not isinstance(instruction.argval, (str, int)):
            break
        steps.append((SUBSCRIPT, instruction.argval))
        index += 2
    return tuple(steps), index


def _is_subscript(instruction: dis.Instruction) -> bool:
    if instruction.opname == "BINARY_SUBSCR":
        return True
    return instruction.opname == "BINARY_OP" and instruction.argrepr == SUBSCRIPT
