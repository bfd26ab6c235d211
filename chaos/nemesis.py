"""Faults and their times: a schedule that depends on a seed alone, and its execution.

Each fault is undone before the next one begins, so that acks=all with two replicas in sync promises that no
acknowledged write is lost. `kill-two` takes the majority away: nothing may be lost, but nothing
goes on either.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from chaos.cluster import Cluster

__all__ = ["KINDS", "Fault", "schedule", "unleash"]

#: the relative frequency of each kind
KINDS: Final = {
    "kill": 4,
    "pause": 3,
    "cut-one-way": 2,
    "cut-both-ways": 2,
    "isolate": 3,
    "disk-full": 2,
    "kill-two": 1,
}
#: a pause beyond the session timeout (3 s) is taken for a death, a shorter one is not
_LASTS_S: Final = (0.5, 6.0)
_REST_S: Final = (1.0, 3.0)


class Fault(NamedTuple):
    """`kind` befalls `nodes` from `at_s` to `until_s` after the beginning."""

    at_s: float
    until_s: float
    kind: str
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} to {self.until_s:6.1f} s  {self.kind} {' '.join(map(str, self.nodes))}"


def schedule(seed: int, seconds: float, nodes: Sequence[int], kinds: Sequence[str]) -> list[Fault]:
    """Faults of these kinds for so many seconds, the last of which has ended by then."""
    rng = random.Random(seed)
    faults = []
    now = rng.uniform(*_REST_S)
    while now + _LASTS_S[1] <= seconds:
        kind = rng.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        until = now + rng.uniform(*_LASTS_S)
        faults.append(Fault(now, until, kind, tuple(rng.sample(nodes, 2))))
        now = until + rng.uniform(*_REST_S)
    return faults


def unleash(cluster: Cluster, faults: Sequence[Fault], seconds: float, say: Callable[[str], None]) -> None:
    """Carry out the schedule, and return when its time is over."""
    began = time.monotonic()
    for fault in faults:
        _sleep_until(began + fault.at_s)
        say(str(fault))
        _inflict(cluster, fault)
        _sleep_until(began + fault.until_s)
        cluster.heal()
    _sleep_until(began + seconds)


def _inflict(cluster: Cluster, fault: Fault) -> None:
    one, other = fault.nodes
    match fault.kind:
        case "kill":
            cluster.kill(one)
        case "kill-two":
            cluster.kill(one)
            cluster.kill(other)
        case "pause":
            cluster.pause(one)
        case "disk-full":
            cluster.fill_disk(one)
        case "cut-one-way":
            cluster.network.cut([(one, other)])
        case "cut-both-ways":
            cluster.network.cut([(one, other), (other, one)])
        case "isolate":
            others = [node for node in cluster.nodes if node != one]
            cluster.network.cut([*((one, node) for node in others), *((node, one) for node in others)])


def _sleep_until(deadline: float) -> None:
    time.sleep(max(0.0, deadline - time.monotonic()))
