"""Guards that keep damaged, stale and missing copies from destroying good ones, each removed in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.broker import stored_partitions
from penstock.broker.clock_watch import ClockWatch
from penstock.broker.unclean_replicas import UncleanReplicas
from penstock.metadata import unclean_recovery
from penstock.metadata.clocks import Clocks
from penstock.metadata.unclean_recovery import ReplicaReport
from penstock.storage.directory import DataDirectory
from tests.simulation.hunting import Mutant

__all__ = ["DISASTER_MUTANTS"]


def _nothing(*_: object) -> None:
    return None


def _delete_strays(directory: DataDirectory, name: str, indexes: Sequence[int]) -> None:
    removal = directory.remove_topic(name, indexes)
    removal.set_aside()
    removal.delete()


def _last_leader(reports: Iterable[ReplicaReport], last_leader: Iterable[int] = ()) -> ReplicaReport | None:
    """Elect as if the last known leader were complete."""
    found, led = list(reports), list(last_leader)
    return next((report for report in found if report.broker in led), found[0] if found else None)


def _any_clock(self: ClockWatch) -> int:
    return self.read().wall_ms


DISASTER_MUTANTS: Final = (
    Mutant(
        guard="missing logs are reported",
        changes=((UncleanReplicas, "mark", _nothing),),
        disaster="folder_removed",
    ),
    Mutant(
        guard="recovery waits for every replica",
        changes=((unclean_recovery, "_missing", lambda *_: {}),),
        disaster="tail_lost",
    ),
    Mutant(
        guard="the most complete replica recovers",
        changes=((unclean_recovery, "most_complete", _last_leader),),
        disaster="tail_lost",
    ),
    Mutant(
        guard="strays are quarantined",
        changes=((stored_partitions, "_quarantine_strays", _delete_strays),),
        disaster="majority_rolled_back",
    ),
    Mutant(
        guard="a wrong clock deletes nothing",
        changes=((ClockWatch, "now_ms", _any_clock),),
        disaster="clock_ahead",
    ),
    Mutant(
        guard="a wrong clock does not lead",
        changes=((Clocks, "off", property(lambda self: {}, _nothing)),),
        disaster="clock_behind",
    ),
)
