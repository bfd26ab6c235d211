"""Wrong clocks: of one broker for long, and of one, two or all brokers for a while.

The brokers keep records for a day (`options`). Records are deleted by the true time at the earliest
(`observation`): every one that a wrong clock deletes is a violation.
"""

from __future__ import annotations

from typing import Final

from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.disasters.steps import (
    DOWN,
    Disaster,
    bring_down,
    damage_of,
    load,
    pause,
    start,
)
from penstock.testing.simulation.node import Node

__all__ = ["CLOCKS"]

_DAY_MS: Final = 86_400_000
#: how long a broker with a wrong clock may go on leading: some heartbeats and elections
_HAND_OVER_S: Final = 10.0


async def clock_ahead(cluster: SimCluster) -> None:
    """One broker's clock is days ahead, with a retention of one day."""
    await _clock_apart(cluster, cluster.rng.choice((2, 8)))


async def clock_behind(cluster: SimCluster) -> None:
    """One broker's clock is days behind: records of now look as if they came from the future."""
    await _clock_apart(cluster, -2)


async def clocks_step(cluster: SimCluster) -> None:
    """Clocks of one, two or all brokers are days ahead for a while, from a start or while they run.

    A host resumes virtual machines with a wrong time. Some of them restart meanwhile.
    """
    rng = cluster.rng
    await load(cluster)
    chosen = rng.sample(cluster.nodes, rng.choice((1, 2, len(cluster.nodes))))
    restarts = rng.random() < 0.5
    if restarts:
        await bring_down(cluster, chosen, rng.choice(DOWN))
    days = rng.choice((2, 8))
    for node in chosen:
        node.clock.jump(days * _DAY_MS)
        node.note(f"disaster: clock jumps by {days} days")
        if rng.random() < 0.5:
            await pause(cluster, 0.0, 1.0)
    damage_of(cluster).assess()
    if restarts:
        await start(cluster, chosen)
    await pause(cluster, 3.0, 20.0)
    if rng.random() < 0.5:
        again = rng.sample(chosen, 1)
        await bring_down(cluster, again, rng.choice(DOWN))
        await start(cluster, again)
        await pause(cluster, 2.0, 4.0)
    for node in chosen:
        node.clock.correct()
        node.note("disaster: clock is corrected")
    await pause(cluster, 1.0, 3.0)


async def _clock_apart(cluster: SimCluster, days: int) -> None:
    roles = await load(cluster)
    node = cluster.rng.choice([roles.leader, *roles.followers])
    restarts = cluster.rng.random() < 0.5
    if restarts:
        await bring_down(cluster, [node], cluster.rng.choice(DOWN))
    node.clock.jump(days * _DAY_MS)
    node.note(f"disaster: clock jumps by {days} days")
    damage_of(cluster).assess()
    node.boot()
    # Long enough for preferred leaders to be elected, and for retention to look at every log.
    await pause(cluster, 3.0, 6.0)
    await _hands_over(cluster, node)


async def _hands_over(cluster: SimCluster, node: Node) -> None:
    """A broker with a wrong clock leads nothing that another in-sync replica can lead."""
    others = [each for each in cluster.nodes if each is not node]

    def leads() -> str | None:
        image = max(
            (each.broker.stages.cluster.image for each in others if each.broker), key=lambda each: each.offset
        )
        led = [p for p in image.partitions if p.leader == node.id and len(p.isr) > 1]
        return str(led[0]) if led else None

    deadline = cluster.loop.time() + _HAND_OVER_S
    while (led := leads()) is not None:
        if cluster.loop.time() > deadline:
            raise Violation("wrong clock leads", f"{node.name}: {led}")
        await pause(cluster, 0.1, 0.1)


CLOCKS: Final[dict[str, Disaster]] = {
    disaster.__name__: disaster for disaster in (clock_ahead, clock_behind, clocks_step)
}
