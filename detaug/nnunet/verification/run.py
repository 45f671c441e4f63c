"""Runs one part of a training in a separate process: as ``nnUNetv2_train``, with a trace and without the final validation."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import traceback
from pathlib import Path

import torch

from detaug.nnunet.compatibility import EXTERNAL_VARIABLE, run_training, trainer_folders, trainers_found_through
from detaug.nnunet.verification.recording import Interruption, recording
from detaug.nnunet.verification.settings import Part
from detaug.nnunet.verification.trace import TraceWriter
from detaug.nnunet.verification.wrong_use import CannotVerify
from detaug.reports.atomic_files import write_text
from detaug.seeding.tree import text_of_seed

#: Files in a training's folder.
TRACE, FAILURE = "trace.jsonl", "failure.json"

#: Seconds.
PARENT_WATCHED_EVERY = 0.5


def main(text: str, parent: str) -> None:
    """Run a part.

    Args:
        text: `Part.as_json`. The environment is set already, see `environment`.
        parent: the process that started this one, which leads its own process group.

    Raises:
        SystemExit: it failed; `FAILURE` says how.
    """
    part = Part.from_json(text)
    folder = Path(part.results).parent
    end_with(int(parent))
    try:
        # as nnUNetv2_train
        torch.set_num_threads((os.cpu_count() or 1) if part.settings.device == "cpu" else 1)
        train(part, folder / TRACE)
    except Exception as error:
        traceback.print_exc()
        failure = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        write_text(folder / FAILURE, json.dumps(failure))
        raise SystemExit(1) from None


def environment(part: Part) -> dict[str, str]:
    """The environment of a part's process: the caller's, with nnU-Net's folders and the seed."""
    return {
        **os.environ,
        "nnUNet_results": part.results,
        "nnUNet_n_proc_DA": str(part.processes),
        EXTERNAL_VARIABLE: trainer_folders(),
        # a trial does not belong on a dashboard
        "nnUNet_wandb_enabled": "0",
        "DETAUG_SEED": text_of_seed(part.settings.seed),
    }


def end_with(parent: int) -> None:
    """Kill this process and all that it started once the parent is gone, for any reason.

    Stock nnU-Net's workers would run on.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_WATCHED_EVERY)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="detaug-parent-watch", daemon=True).start()


def train(part: Part, trace: Path) -> None:
    """nnU-Net's own `run_training`, with `Recording` in front of the trainer that it finds.

    Args:
        part: what to train. The environment is that of `environment`.
        trace: the moments are appended to this file.
    """
    settings = part.settings
    writer = TraceWriter(trace)
    try:
        with trainers_found_through(lambda trainer: recording(trainer, part, writer)):
            run_training(
                settings.dataset,
                settings.configuration,
                settings.fold,
                settings.trainer,
                settings.plans,
                continue_training=part.resume,
                device=torch.device(settings.device),
            )
    except Interruption:
        print(f"Interrupted after epoch {part.stop_after}, as requested.")
    except LookupError as error:
        if error.args != (settings.trainer,):
            raise
        folders = os.environ["nnUNet_extTrainer"]
        raise CannotVerify(
            f"there is no trainer {settings.trainer!r}, neither nnU-Net's own nor in nnUNet_extTrainer={folders}"
        ) from None
    finally:
        writer.close()
