"""Programs that run a pipeline from the source code of a user's module.

A test runs two programs, one after the other. The second imports the module again, draws other
numbers from the global generators meanwhile, and loads the state that the first has saved.
"""

from __future__ import annotations

import random
import sys
import types
from contextlib import ExitStack
from itertools import count

import numpy as np
import torch

from detaug import DeterministicAugmenter

#: A new module name for every test. Until the process ends, detaug remembers by a module's name
#: which of its variables pipelines have written.
NAMES = (f"users_module_{number}" for number in count())
#: The beginning of every module.
COMMON = """
import argparse
import array
import collections
import contextvars
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import logging
import os
import random
import re
import sys
import threading
import time
import types
import uuid
import weakref
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque

import numpy as np
import torch


class Loader:
    def __iter__(self):
        return self

    def __next__(self):
        return {"x": np.random.rand(8)}


loader = Loader()
transform = None
"""


class Program:
    """A program that imports a user's module and runs its pipeline, simulated in this process.

    Args:
        source: code of the module, which follows `COMMON`.
        seed: of the global generators while the module is imported.
        stack: closes the augmenter.
        name: of the module.
    """

    def __init__(self, source: str, seed: int, stack: ExitStack, name: str) -> None:
        self.module = types.ModuleType(name)
        sys.modules[name] = self.module
        np.random.seed(seed)
        random.seed(seed)
        torch.manual_seed(seed)
        exec(COMMON + source, vars(self.module))
        self.augmenter = stack.enter_context(
            DeterministicAugmenter(
                self.module.loader,
                self.module.transform,
                0,
                seed=4,
                stateless=True,
                batches_per_epoch=20,
                check=False,
            )
        )
