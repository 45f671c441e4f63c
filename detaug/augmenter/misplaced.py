"""The refusal of an augmenter that is passed to a training library instead of a DataLoader.

Lightning's sanity check would take batches out of the augmenter's one stream. Trainer would restart
an epoch that it should resume. Accelerate's prepare would silently ignore the augmenter, so that no
checkpoint would contain its position.

The calling frame shows which library asks; the call itself does not. Accelerate only calls
``isinstance(loader, DataLoader)``, as many others do for whom False is the right answer. Lightning
and Trainer also read ``dataset``, ``sampler`` and ``batch_sampler``, but by ``getattr`` with a
default, as users' loops do. An error there would break correct programs.
"""

from __future__ import annotations

import sys

#: Modules that check the type of a loader, or iterate over it.
_LIBRARY_MODULES = (
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


def refuse_to_be_a_loader() -> None:
    """Raise if the caller of the calling method belongs to a training library.

    Raises:
        TypeError: the message says what to pass instead of the augmenter.
    """
    # Frame 0 is this function, 1 the method that calls it, and 2 that method's caller.
    module = str(sys._getframe(2).f_globals.get("__name__", ""))
    if module.startswith(_LIBRARY_MODULES):
        library = module.partition(".")[0]
        raise TypeError(
            f"{library} was given a DeterministicAugmenter, which it cannot read like a "
            "DataLoader: pass detaug.DataLoader(dataset, ...), or the augmenter's aug.loader()"
        )
