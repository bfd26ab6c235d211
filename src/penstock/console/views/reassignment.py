"""The tab of reassignments: the balance of brokers, what a plan moves, and what throttles are set.

Invariant: bytes that are not known are None, and a total without them is marked as incomplete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.console.views.knowledge import UNKNOWN, Gap, gap_of_brokers
from penstock.console.views.overview import broker_rows
from penstock.console.views.samples import Key, Sample
from penstock.reassignment.requests import BrokerLimits
from penstock.reassignment.throttle import MEMORY, RATES

__all__ = [
    "Load",
    "Plan",
    "PlannedMove",
    "balance_view",
    "changed_since",
    "make_plan",
    "plan_view",
    "throttle_view",
]

#: moves of a plan in one response; the page draws the visible ones, and totals are of all
MOVES_MAX: Final = 5_000


@dataclass(slots=True)
class Load:
    """What one broker holds, or would hold after a plan."""

    replicas: int = 0
    leaders: int = 0
    #: partitions whose first replica it has: those that it leads after an election of preferred leaders
    preferred: int = 0
    size: int = 0


class PlannedMove(NamedTuple):
    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    #: bytes that new replicas copy; None if the size of the partition is not known
    copied: int | None

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def copies_data(self) -> bool:
        return bool(set(self.after) - set(self.before))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a user has seen before it is executed."""

    moves: list[PlannedMove]
    #: the brokers that end up empty
    leaving: tuple[int, ...] = ()
    #: partitions that stay on them, because no other broker has a place
    stuck: list[Key] = field(default_factory=list)


def loads_of(sample: Sample, placed: Mapping[Key, Sequence[int]] | None = None) -> dict[int, Load]:
    """What each broker holds; `placed` has other replicas for some partitions."""
    found: dict[int, Load] = {}
    for key, partition in sample.partitions.items():
        replicas = partition.replicas if placed is None else placed.get(key, partition.replicas)
        size = sample.sizes.get(key, 0)
        for position, broker in enumerate(replicas):
            load = found.setdefault(broker, Load())
            load.replicas += 1
            load.size += size
            load.preferred += not position
        if partition.leader >= 0:
            found.setdefault(partition.leader, Load()).leaders += 1
    return found


def balance_view(sample: Sample) -> dict[str, Any]:
    """The brokers with their replicas, leaders and bytes, and how far the fullest is above the mean."""
    rows = broker_rows(sample)
    loads = loads_of(sample)
    for row in rows:
        row["preferred"] = loads.get(row["id"], Load()).preferred
    up = [row for row in rows if row["state"] != "gone"]
    gap = sample.gaps.get("sizes")
    return {
        "brokers": rows,
        "sizes_gap": None if gap is None else gap.shown(),
        "spread": {name: _spread([row[name] for row in up]) for name in ("replicas", "leads", "size")},
        "not_preferred": sum(p.leader >= 0 and p.leader != p.replicas[0] for p in sample.partitions.values()),
    }


def _spread(values: Sequence[int | None]) -> float | None:
    """How far the highest value is above the mean, as a share of it; None if one is not known."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values) or not sum(known):
        return None
    mean = sum(known) / len(known)
    return round(max(known) / mean - 1, 3)


def make_plan(
    sample: Sample, moves: Iterable[tuple[str, int, Sequence[int]]], leaving: Collection[int], text: str
) -> Plan:
    """A plan of moves that a planner has proposed, of topics whose name contains `text`."""
    wanted = text.strip().lower()
    planned = []
    for topic, index, replicas in moves:
        partition = sample.partitions.get((topic, index))
        if partition is None or wanted not in topic.lower():
            continue
        planned.append(planned_move(sample, (topic, index), replicas))
    after = {move.key: move.after for move in planned}
    stuck = [
        key
        for key, partition in sample.partitions.items()
        if leaving and wanted in key[0].lower() and set(after.get(key, partition.replicas)) & set(leaving)
    ]
    return Plan(planned, tuple(sorted(leaving)), stuck)


def planned_move(sample: Sample, key: Key, replicas: Sequence[int]) -> PlannedMove:
    before = sample.partitions[key].replicas
    size, new = sample.sizes.get(key), len(set(replicas) - set(before))
    return PlannedMove(*key, before, tuple(replicas), None if size is None and new else (size or 0) * new)


def plan_view(sample: Sample, plan: Plan) -> dict[str, Any]:
    """A plan for the page: its moves, the largest first, and each broker before and after."""
    moves = sorted(plan.moves, key=lambda move: (not move.copies_data, -(move.copied or 0), move.key))
    before, after = loads_of(sample), loads_of(sample, {move.key: move.after for move in plan.moves})
    unknown = sum(move.copied is None for move in moves)
    received = dict.fromkeys(after, 0)
    for move in moves:
        for broker in set(move.after) - set(move.before):
            received[broker] = received.get(broker, 0) + (sample.sizes.get(move.key) or 0)
    gap = Gap(UNKNOWN, f"the size of {unknown} of them is not known") if unknown else None
    return {
        "moves": [
            [*move.key, list(move.before), list(move.after), move.copied] for move in moves[:MOVES_MAX]
        ],
        "total": len(moves),
        "copying": sum(move.copies_data for move in moves),
        "bytes": sum(move.copied or 0 for move in moves),
        "bytes_gap": None if gap is None else gap.shown(),
        "brokers": [
            {
                "id": broker,
                "replicas": [_load(before, broker).replicas, _load(after, broker).replicas],
                "leaders": [_load(before, broker).preferred, _load(after, broker).preferred],
                "size": [_load(before, broker).size, _load(after, broker).size],
                "received": received.get(broker, 0),
            }
            for broker in sorted({*before, *after})
        ],
        "leaving": list(plan.leaving),
        "stuck": len(plan.stuck),
        "stuck_example": None if not plan.stuck else f"{plan.stuck[0][0]}-{plan.stuck[0][1]}",
    }


def _load(loads: Mapping[int, Load], broker: int) -> Load:
    return loads.get(broker, Load())


def changed_since(plan: Plan, now: Mapping[Key, Sequence[int]]) -> list[Key]:
    """The partitions whose replicas are no longer those that the plan has been made for."""
    return [move.key for move in plan.moves if tuple(now.get(move.key, ())) != move.before]


def throttle_view(limits: Mapping[int, BrokerLimits | Gap]) -> dict[str, Any]:
    """The rates that are set, and whether a move has set them; the gap is that of silent brokers."""
    gaps = {broker: found for broker, found in limits.items() if isinstance(found, Gap)}
    known = {broker: found for broker, found in limits.items() if isinstance(found, BrokerLimits)}
    rates = [
        {
            "broker": broker,
            "leader": found.rates.get(RATES[0]),
            "follower": found.rates.get(RATES[1]),
            "by_move": bool(found.own.get(MEMORY)),
        }
        for broker, found in sorted(known.items())
        if found.rates
    ]
    gap = gap_of_brokers(gaps)
    return {
        "rates": rates if known else None,
        "by_move": any(bool(found.own.get(MEMORY)) for found in known.values()),
        "ends_itself": bool(known) and all(found.remembers for found in known.values()),
        "gap": None if gap is None else gap.shown(),
    }
