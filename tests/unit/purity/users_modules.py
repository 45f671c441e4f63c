"""Pipelines that are the source text of a user's module, and the programs that run them.

Two programs run a pipeline, one after the other. The second imports the module anew, with other
numbers from the global generators, and loads the state that the first has saved.
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

#: No two tests have a module of one name: what a pipeline writes is known by it, as long as the
#: process lives.
NAMES = (f"users_module_{number}" for number in count())
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
    """A program that imports the user's module and runs its pipeline in this process."""

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
