"""Brokers that heal themselves without one of their guards."""

from __future__ import annotations

from typing import Any, Final

from penstock.metadata.absences import Absences
from penstock.metadata.healing import _Healing
from penstock.metadata.image import NO_LEADER, PartitionImage
from penstock.metadata.partition_change import PartitionChange
from tests.testing.simulation.hunting import Mutant

__all__ = ["HEALING_MUTANTS"]

_gone = Absences.gone


def _gone_for_ever(self: Absences, now_ms: float) -> dict[int, float]:
    return dict.fromkeys(_gone(self, now_ms), float("inf"))


def _obstacle(self: Any, partition: PartitionImage) -> str:
    return "have no leader" if partition.leader == NO_LEADER else ""


def _settle_at_once(self: PartitionChange) -> None:
    """End a reassignment as soon as a replica that stays is in sync."""
    isr = [node for node in self.isr if node not in self.removing]
    if isr and (self.adding or self.removing):
        self.replicas = [node for node in self.replicas if node not in self.removing]
        self.isr, self.adding, self.removing = isr, (), ()


HEALING_MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        guard="rebuilds wait",
        changes=((Absences, "gone", _gone_for_ever),),
        brokers=5,
        directed_fault="flapping",
    ),
    Mutant(
        guard="rebuilds need brokers",
        changes=((_Healing, "_obstacle", _obstacle),),
        brokers=5,
        directed_fault="too_few",
    ),
    Mutant(
        guard="rebuilds end when the broker is back",
        changes=((_Healing, "_is_back", lambda self, node: False),),
        brokers=5,
        directed_fault="back_in_time",
    ),
    Mutant(
        guard="old replicas stay until the new are in sync",
        changes=((PartitionChange, "_settle_reassignment", _settle_at_once),),
        brokers=5,
        directed_fault="gone_for_good",
    ),
)
