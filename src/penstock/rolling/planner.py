"""Decides the next step of a roll from the state of the cluster.

Invariant: a broker is restarted only if the cluster is whole (every broker is up, every replica in sync,
every voter current), and if all partitions and the quorum go on without this broker.

Brokers of one zone follow each other, so that replicas of the other zones are not touched meanwhile. Brokers
that vote come after the others of their zone, the zone of the active controller comes last, and the active
controller last of all: each restart of it costs an election.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

from penstock.rolling.state import ClusterState, Partition

__all__ = ["Done", "Refuse", "Restart", "Step", "Wait", "next_broker", "next_step", "obstacles", "outages"]

#: how many partitions a reason names
_NAMED: Final = 3


class Restart(NamedTuple):
    """Restart this broker now."""

    broker: int


class Wait(NamedTuple):
    """The cluster is not whole. That may pass."""

    reasons: list[str]


class Refuse(NamedTuple):
    """The restart of the next broker would make something unavailable. That does not pass by itself."""

    broker: int
    reasons: list[str]


class Done(NamedTuple):
    """All brokers were restarted, and the cluster is whole."""


Step: TypeAlias = Restart | Wait | Refuse | Done


def next_step(
    state: ClusterState, left: Collection[int], *, begun: int | None = None, allow_outages: bool = False
) -> Step:
    """The next step, where `left` are the brokers that have not been restarted yet.

    `begun` is the broker whose restart an earlier attempt began: it may be stopped, and is restarted again if
    the others are whole. With `allow_outages`, partitions and the quorum may be unavailable while a broker
    restarts.
    """
    if begun in left and begun is not None:
        reasons = obstacles(state, without=begun)
        return Wait(reasons) if reasons else Restart(begun)
    gone = [f"broker {id_} is not registered" for id_ in sorted(left) if id_ not in state.brokers]
    if reasons := gone + obstacles(state):
        return Wait(reasons)
    if not left:
        return Done()
    broker = next_broker(state, left)
    if not allow_outages and (reasons := outages(state, broker)):
        return Refuse(broker, reasons)
    return Restart(broker)


def next_broker(state: ClusterState, left: Collection[int]) -> int:
    """The broker that is restarted first among those that are `left`."""
    voters = {voter.id for voter in state.voters}
    controller = None if state.controller is None else state.brokers.get(state.controller)
    last = None if controller is None else controller.rack
    begun = {broker.rack for broker in state.brokers.values() if broker.id not in left}

    def rank(id_: int) -> tuple[bool, bool, bool, str, bool, int]:
        rack = state.brokers[id_].rack
        return id_ == state.controller, rack not in begun, rack == last, rack, id_ in voters, id_

    return min(left, key=rank)


def obstacles(state: ClusterState, without: int | None = None) -> list[str]:
    """What keeps the cluster from being whole, a reason each; `without` a broker, which may be stopped."""
    found = [] if state.controller is not None else ["the quorum has no leader"]
    found += [f"broker {e.id} is not up" for e in state.brokers.values() if not e.is_up and e.id != without]
    found += [
        f"voter {each.id} does not follow the quorum"
        for each in state.voters
        if not each.is_current and each.id != without
    ]
    leaderless = [each for each in state.partitions if each.leader is None and without not in each.replicas]
    lacking = [each for each in state.partitions if not {without, *each.isr}.issuperset(each.replicas)]
    if leaderless:
        found.append(f"without a leader: {_named(leaderless)}")
    if lacking:
        found.append(f"with replicas that are not in sync: {_named(lacking)}")
    return found


def outages(state: ClusterState, broker: int) -> list[str]:
    """What would be unavailable while this broker restarts, a reason each."""
    found = []
    current = [voter.id for voter in state.voters if voter.is_current]
    if broker in current and 2 * (len(current) - 1) <= len(state.voters):
        found.append(
            f"{len(current) - 1} of {len(state.voters)} voters are no majority, so the quorum would stop"
        )
    held = [each for each in state.partitions if broker in each.replicas]
    alone = [each for each in held if not set(each.isr) - {broker}]
    fewer = [each for each in held if each not in alone and len(set(each.isr) - {broker}) < each.min_isr]
    if alone:
        found.append(f"it has the only replica of {_named(alone)}")
    if fewer:
        found.append(f"fewer replicas than min.insync.replicas would be in sync of {_named(fewer)}")
    return found


def _named(partitions: Iterable[Partition]) -> str:
    names = sorted(each.name for each in partitions)
    more = f" and {len(names) - _NAMED} more partitions" if len(names) > _NAMED else ""
    return ", ".join(map(str, names[:_NAMED])) + more
