"""Whether a loader may be declared ``stateless=True``."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.plan import BatchKey
from detaug.sources import resolve_source
from detaug.verify.bench import Factory, Subject, Trial, call_factory, perform
from detaug.verify.diagnosis import Experiment, causes_of, differing
from detaug.verify.result import Stateless


@dataclass(frozen=True)
class _LoaderAlone:
    factory: Factory

    def __call__(self) -> tuple[object, None]:
        return call_factory(self.factory)[0], None


def judge_statelessness(subject: Subject, keys: list[BatchKey], stateless: bool) -> Stateless:
    """Make the loader's batches forwards and backwards with nothing put back in between but its own generators' seeds.

    Args:
        subject: the pipeline.
        keys: the batches to make.
        stateless: detaug takes it for stateless without being told.
    """
    alone = Subject(_LoaderAlone(subject.factory), subject.entropy, subject.num_streams, True)
    try:
        resolve_source(call_factory(subject.factory)[0], True)
    except (TypeError, ValueError) as error:
        return Stateless(False, str(error))
    order = tuple(dict.fromkeys(keys))
    # What is known to be stateless is told so with its small state put back before every batch.
    repairs = "all" if stateless else "generators"
    still, backwards = Trial(order, repairs=repairs), Trial(order[::-1], repairs=repairs)
    different = differing(perform(alone, still), perform(alone, backwards))
    if not different:
        if stateless:
            return Stateless(True, "the loader is taken for stateless already, and is: no batch depends on another")
        return Stateless(True, "none of the loader's batches depends on the batches before it")
    cause = causes_of(alone, Experiment("history", still, backwards), different)[0]
    return Stateless(False, f"the loader's batches depend on the ones before: {cause}", cause.site)
