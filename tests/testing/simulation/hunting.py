"""How a broker without one of its guards is run, and how many seeds it takes until a promise breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock.testing.simulation.scenario import Options, simulate

__all__ = ["Found", "Mutant", "hunt"]

#: seeds that a guard may stay unmissed
SEEDS_MAX: Final = 150


Change: TypeAlias = tuple[object, str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A guard and what takes its place: in which owners, under which names."""

    guard: str
    changes: tuple[Change, ...]
    brokers: int = 3
    #: where only some faults, and more of them, make a difference
    allowed: tuple[str, ...] | None = None
    #: where faults have to come in a certain order
    directed_fault: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    #: whether the fault needs an operator's request
    operated: bool = False
    #: where it takes damaged, stale or missing copies
    disaster: str | None = None
    #: where it takes transactional clients
    transactional: bool = False
    #: where it takes members of a share group
    shared: bool = False
    #: whether it takes an archive: tiered topics and a backup
    archived: bool = False
    #: changes of the real code without which the guard is rarely needed; they stay when the guard is in place
    conditions: tuple[Change, ...] = ()

    def options(self, seed: int) -> Options:
        if self.archived:
            drawn = Options.draw_archived(seed, self.brokers)
            return drawn.with_transactions().with_archive() if self.transactional else drawn
        drawn = Options.draw(seed, self.brokers)
        if self.transactional or self.shared:
            allowed = drawn.allowed if self.allowed is None else self.allowed
            drawn = (drawn.with_shares if self.shared else drawn.with_transactions)(self.directed_fault)
            return replace(drawn, allowed=allowed)
        if self.allowed is not None:
            drawn = replace(drawn, allowed=self.allowed, faults=8, duration_s=drawn.duration_s + 4)
        if self.disaster is not None:
            return drawn.with_disaster(self.disaster)
        if self.operated:
            return drawn.with_operator()
        return (
            replace(drawn, directed_fault=None)
            if self.directed_fault is None
            else drawn.with_directed_fault(self.directed_fault)
        )


@dataclass(frozen=True, slots=True)
class Found:
    violation: str
    seeds: int


@contextmanager
def _changed(changes: Sequence[Change]) -> Iterator[None]:
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, instead in changes:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def hunt(mutant: Mutant, seeds: int = SEEDS_MAX, first: int = 0) -> Found | None:
    """The first violation that a seed finds; None if none of them does.

    The seed `first` is tried first. It may be larger than the others.
    """
    for seed in dict.fromkeys((first, *range(seeds))):
        options, settings = mutant.options(seed), dict(mutant.settings)
        with _changed((*mutant.conditions, *mutant.changes)):
            violation = simulate(seed, options, settings=settings).violation
        if violation is None:
            continue
        # A seed that finds something with the guard in place, too, says nothing about the guard.
        with _changed(mutant.conditions):
            is_sound = simulate(seed, options, settings=settings).violation is None
        if is_sound:
            return Found(violation.name, seed + 1)
    return None
