"""The pipeline of a ledger, made again here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from detaug.engine.arguments import Check
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected
from detaug.errors import UnusableError
from detaug.ledger.header import portable
from detaug.pipeline import identity
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import StreamEnded
from detaug.verification.handed_in import Factory, call_factory
from detaug.versions import NUMERICS, SEED_SCHEME

_DIGEST = re.compile(r"digest [0-9a-f]{16}")
_MODULES = re.compile(r"(?:[A-Za-z_]\w*\.)+")


class CannotRemake(UnusableError):
    """Batches of the ledger cannot be made here; the message says why."""


class Remaker:
    """Makes batches of a ledger by an augmenter of the same pipeline and seed, which is not started; or `CannotRemake`. Its
    `remark` says how the description differs from the ledger's in what may be paths."""

    def __init__(self, augmenter: DeterministicAugmenter, header: Mapping[str, Any]) -> None:
        self.augmenter = augmenter
        #: Keys of a batch that are not compared: the pipeline here says which, never a file that is tested.
        self.left_out = tuple(augmenter.check.ignore)
        inside = inspected(augmenter)
        self.replayer = inside.replayer
        self.remark = _compare(portable(inside.declared), header["declared"])

    def make(self, epoch: int, step: int) -> Any:
        """The batch; `CannotRemake` where there is none, or where the loader or the transform raises."""
        try:
            return self.replayer.make(BatchKey(epoch, step))
        except StreamEnded:
            raise CannotRemake(
                f"epoch {epoch} has no step {step} here: has the data changed?"
            ) from None
        except Exception as error:
            raise CannotRemake(
                f"epoch {epoch}, step {step} cannot be made here: {type(error).__name__}: {error}"
            ) from error


def _compare(ours: list[str], ledgers: list[str]) -> str:
    """`CannotRemake` where it is not the ledger's pipeline. Digests of long lists may be of files that lie elsewhere here, so
    that they are only remarked on: the batches will show."""
    if len(ours) == len(ledgers):
        ours = [
            theirs if _is_of_script(own, theirs) else own
            for own, theirs in zip(ours, ledgers, strict=True)
        ]
    if ours == ledgers:
        return ""
    told = identity.differences(ours, ledgers).replace("in the state", "in the ledger")
    if [_DIGEST.sub("", line) for line in ours] != [_DIGEST.sub("", line) for line in ledgers]:
        raise CannotRemake(f"this is another pipeline than the ledger's: {told}")
    return f"the pipeline's description has other digests, as of files that lie elsewhere: {told}"


def _is_of_script(own: str, theirs: str) -> bool:
    """Whether two lines differ in nothing but modules, of which one is the script that was run: a factory is imported from the
    script ``__main__`` as a module."""
    return "__main__." in own + theirs and _MODULES.sub("", own) == _MODULES.sub("", theirs)


def check_versions(header: Mapping[str, Any], what: str = "ledger") -> None:
    """`CannotRemake` where this version of detaug makes other bytes."""
    for name, text, ours in (
        ("numerics", "numerics version", NUMERICS),
        ("seed_scheme", "seed scheme", SEED_SCHEME),
    ):
        if header.get(name) != ours:
            raise CannotRemake(
                f"{text}: the {what} has {header.get(name)!r}, this detaug has {ours}, which makes other batches. Install the "
                f"detaug that wrote it ({header.get('detaug') or header.get('versions', {}).get('detaug')})"
            )


def remaker_of(factory: Factory, header: Mapping[str, Any]) -> Remaker:
    """From a factory, as for `detaug verify`: with the ledger's seed, and its arguments where the factory gives no augmenter; or
    `CannotRemake`."""
    handed = call_factory(factory, header.get("stateless"), header.get("batches_per_epoch"))
    try:
        augmenter = handed.augmenter(
            seed=header["seed"],
            name=header["name"],
            num_streams=header["num_streams"],
            batches_per_epoch=handed.batches_per_epoch or header.get("batches_per_epoch"),
            version=header.get("version", "") if handed.version is None else handed.version,
            keep=tuple(header.get("keep", ())) if handed.version is None else handed.keep,
            check=Check(every=0, ignore=handed.check_ignore),
        )
    except (TypeError, ValueError) as error:
        raise CannotRemake(f"the header makes no augmenter: {error}") from error
    return Remaker(augmenter, header)
