"""Computes the verdict on a disaster from the records found after it; pure.

A record counts as lost if it was acknowledged, at least one replica still had it in its files after the
damage was done, and in the end no replica has it and it cannot be read at its offset. It counts as unreadable
if a replica still has it. Records of which the disaster itself destroyed every copy are not counted against
the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from disasters.clients import Ledger, Place

__all__ = ["Counts", "Examination", "Result", "Verdict", "compare", "verdict_of"]


class Verdict(Enum):
    """From best to worst."""

    KEPT = "kept"
    #: partitions waited for something and said so; the documented action brought everything back
    WAITED = "waits, then kept"
    #: a broker refused to start and said why; the documented action brought everything back
    REFUSED = "refused, then kept"
    #: nothing is lost, but something does not work
    HURT = "HURT"
    STUCK = "STUCK"
    WRONG = "WRONG DATA"
    UNREADABLE = "UNREADABLE"
    LOST = "LOST"
    #: the disaster could not be carried out
    SKIPPED = "not run"

    @property
    def is_good(self) -> bool:
        return self in (Verdict.KEPT, Verdict.WAITED, Verdict.REFUSED)


@dataclass(frozen=True, slots=True)
class Examination:
    """The observations after the brokers had time to recover."""

    acknowledged: int = 0
    read: int = 0
    lost: int = 0
    #: records that consumers do not get although a replica has them
    unreadable: int = 0
    #: records read that belong elsewhere, or differ from the acknowledged record at their offset
    wrong: int = 0
    commits_lost: int = 0
    whole: bool = True
    refused: tuple[int, ...] = ()
    #: acknowledged records that the files of a broker lack though it is in sync
    lacking: Mapping[int, int] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    done: str
    verdict: Verdict
    seconds: float
    last: Examination
    #: before the documented action, where one was taken
    first: Examination | None = None
    said: tuple[str, ...] = ()


class Counts(NamedTuple):
    """Acknowledged records read, lost and unreadable; wrong records; committed offsets that are lost."""

    read: int
    lost: int
    unreadable: int
    wrong: int
    commits_lost: int


def compare(
    ledger: Ledger,
    held: AbstractSet[Place],
    on_disk: AbstractSet[Place],
    read: Mapping[Place, bytes],
    committed: Mapping[tuple[str, int], int],
) -> Counts:
    """Compares the ledger with the records read; replicas had `held` after the damage, `on_disk` last."""
    right = {place for place, value in ledger.acknowledged.items() if read.get(place) == value}
    missing = held - right
    wrong = sum(
        not value.startswith(place.topic.encode() + b" ") or ledger.acknowledged.get(place, value) != value
        for place, value in read.items()
    )
    commits = sum(committed[place] < offset for place, offset in ledger.commits.items() if place in committed)
    return Counts(len(right), len(missing - on_disk), len(missing & on_disk), wrong, commits)


def verdict_of(first: Examination, last: Examination | None) -> Verdict:
    """States the verdict from the first examination, and the one after the documented action if any."""
    final = last or first
    if final.lost or final.commits_lost:
        return Verdict.LOST
    if final.wrong:
        return Verdict.WRONG
    if final.unreadable:
        return Verdict.UNREADABLE
    if not final.whole:
        return Verdict.STUCK
    if final.lacking or final.complaints:
        return Verdict.HURT
    if last is None:
        return Verdict.KEPT
    return Verdict.REFUSED if first.refused else Verdict.WAITED
