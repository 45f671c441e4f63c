"""Forked processes that stand for fresh interpreters."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_from_system() -> None:
    """Seed the global generators from the operating system, as a new interpreter does.

    A fork inherits the state of its parent's generators: otherwise all trainings of nnU-Net's
    trainer that one process starts would begin with the same weights. detaug's trainers seed them
    again.
    """
    torch.seed()
    # The parent has imported these as well.
    np.random.seed()
    random.seed()
