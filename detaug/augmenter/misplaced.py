"""An augmenter that is given to a training library as it is, where a DataLoader belongs.

Lightning's sanity check would take batches out of its one stream, Trainer would start an epoch
again that it resumes, and Accelerate's prepare would leave it alone without a word, so that its
place is in no checkpoint.

Who asks is read from the calling frame, because the questions do not tell. Accelerate asks only
``isinstance(loader, DataLoader)``, as many do for whom no is the right answer. Lightning and
Trainer also read ``dataset``, ``sampler`` and ``batch_sampler``, but by ``getattr`` with a default,
as loops of users do: an error there would refuse programs that are right.
"""

from __future__ import annotations

import sys

#: The modules that ask what kind of loader they were given, or iterate over it.
_ASKING = (
    "accelerate.accelerator",
    "accelerate.data_loader",
    "lightning.fabric.fabric",
    "lightning.pytorch.loops",
    "lightning.pytorch.trainer.connectors.data_connector",
    "lightning.pytorch.utilities.combined_loader",
    "lightning_fabric.fabric",
    "pytorch_lightning.loops",
    "pytorch_lightning.trainer.connectors.data_connector",
    "pytorch_lightning.utilities.combined_loader",
    "transformers.trainer",
)


def refuse_to_be_a_loader(depth: int = 2) -> None:
    """Raise if a training library asks.

    Args:
        depth: of the asking frame; 1 is the caller of this function.

    Raises:
        TypeError: it says what to pass in place of the augmenter.
    """
    asking = str(sys._getframe(depth).f_globals.get("__name__", ""))
    if asking.startswith(_ASKING):
        library = asking.partition(".")[0]
        raise TypeError(
            f"{library} was given a DeterministicAugmenter, whose one stream it would not read as "
            "it reads a DataLoader: pass "
            "detaug.DataLoader(dataset, ...), or the augmenter's aug.loader()"
        )
