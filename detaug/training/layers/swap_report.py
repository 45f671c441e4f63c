"""What `make_deterministic` did, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SwapReport:
    """The report of `make_deterministic`. Names are those of `nn.Module.named_modules`; the root's is ``""``.

    Attributes:
        swapped: name → (class before, class now).
        could_not: name → why the module may still vary from run to run, and what to use instead.
        already: name → class, of modules that were deterministic layers before.
    """

    swapped: dict[str, tuple[str, str]] = field(default_factory=dict)
    could_not: dict[str, str] = field(default_factory=dict)
    already: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing is left that is known to vary."""
        return not self.could_not

    def __str__(self) -> str:
        lines = [
            f"swapped {len(self.swapped)}, already deterministic {len(self.already)}, could not {len(self.could_not)}"
        ]
        lines += [f"  swapped    {_shown(name)}: {old} -> {new}" for name, (old, new) in self.swapped.items()]
        lines += [f"  already    {_shown(name)}: {kind}" for name, kind in self.already.items()]
        lines += [f"  could not  {_shown(name)}: {why}" for name, why in self.could_not.items()]
        return "\n".join(lines)


def _shown(name: str) -> str:
    return name or "(the module itself)"
