"""Steps that disasters are made of: load, orderly and disorderly ends, backups, starts in some order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.model.ids import TopicPartition
from penstock.storage.memory import Directory
from penstock.testing.simulation.cast import Cast, casts
from penstock.testing.simulation.convergence import unsettled
from penstock.testing.simulation.disasters.tampering import Folder
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.plots import CameToNothing

if TYPE_CHECKING:
    from penstock.testing.simulation.disasters.damage import Damage
    from penstock.testing.simulation.scenario import Simulation

__all__ = [
    "DOWN",
    "Disaster",
    "all_down",
    "all_up",
    "backup_at_clean_stop",
    "below",
    "bring_down",
    "damage_of",
    "down",
    "folder_of",
    "load",
    "one_or_all_down",
    "pause",
    "staggered",
    "start",
    "steady",
    "until",
]

Disaster: TypeAlias = Callable[["Simulation"], Awaitable[None]]
#: ways in which a broker ends
DOWN: Final = ("stopped", "killed", "powerless")
_GLANCE_S: Final = 0.02
_PATIENCE_S: Final = 20.0


def damage_of(simulation: Simulation) -> Damage:
    assert simulation.damage is not None
    return simulation.damage


async def pause(simulation: Simulation, low_s: float, high_s: float) -> None:
    await asyncio.sleep(simulation.rng.uniform(low_s, high_s))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has to come about; CameToNothing if it does not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while not condition():
        if loop.time() > deadline:
            raise CameToNothing
        await asyncio.sleep(_GLANCE_S)


async def steady(simulation: Simulation) -> Cast:
    """A partition of the topic that clients use, once every broker is up and every replica in sync."""
    partitions = simulation.partitions

    def found() -> list[Cast]:
        return [cast for cast in casts(simulation.nodes) if cast.partition in partitions]

    await until(lambda: len(found()) == len(partitions))
    return simulation.rng.choice(found())


async def load(simulation: Simulation) -> Cast:
    """Let clients write for long enough that every partition has several segments."""
    await steady(simulation)
    await pause(simulation, 1.0, 2.0)
    return await steady(simulation)


async def bring_down(simulation: Simulation, nodes: Sequence[Node], how: str, gap_s: float = 0.3) -> None:
    """End brokers one after the other, the last of `nodes` last."""
    for node in nodes:
        await pause(simulation, 0.0, gap_s)
        if how == "stopped":
            await until(lambda node=node: node.broker is not None or not node.is_up)  # type: ignore[misc]
            node.stop()
            await until(lambda node=node: not node.is_up)  # type: ignore[misc]
        elif how == "killed":
            node.kill()
        else:
            node.power_off()
        node.mount()


async def start(simulation: Simulation, nodes: Sequence[Node], gap_s: float = 0.5) -> None:
    """Start brokers one after the other, and wait a moment."""
    for node in nodes:
        await pause(simulation, 0.0, gap_s)
        node.boot()
    await pause(simulation, 0.5, 2.0)


async def backup_at_clean_stop(simulation: Simulation, nodes: Sequence[Node]) -> dict[int, Directory]:
    """Stop each node, copy its whole disk, and start it again; then clients write some more."""
    backups = {}
    for node in nodes:
        await bring_down(simulation, [node], "stopped")
        backups[node.id] = damage_of(simulation).backup(node, "")
        node.boot()
        await until(lambda: unsettled_replicas(simulation) is None)
    await load(simulation)
    return backups


def unsettled_replicas(simulation: Simulation) -> str | None:
    """What is not as it should be, apart from what is being written just now."""
    left = unsettled(simulation.nodes)
    return None if len(casts(simulation.nodes)) >= len(simulation.partitions) else left


def folder_of(simulation: Simulation, node: Node, partition: TopicPartition) -> Folder:
    """Where a node has a partition."""
    found = [f for f in damage_of(simulation).folders(node) if f.partition == partition]
    if not found:
        raise CameToNothing
    return found[0]


def below(backup: Directory, path: str) -> Directory:
    """The part of a copy of a whole disk that lies at `path`."""
    for name in filter(None, path.split("/")):
        found = backup.get(name)
        if not isinstance(found, Directory):
            raise CameToNothing
        backup = found
    return backup


async def down(simulation: Simulation, victim: Node, how: str) -> None:
    """End all brokers; the victim is mostly the last, and so the last leader."""
    others = [node for node in simulation.nodes if node is not victim]
    simulation.rng.shuffle(others)
    order = [*others, victim]
    if simulation.rng.random() < 0.3:
        simulation.rng.shuffle(order)
    await bring_down(simulation, order, how)


async def all_down(simulation: Simulation, how: str) -> tuple[Cast, Node]:
    """Load, and then all brokers end; the victim is mostly the last."""
    cast = await load(simulation)
    victim = simulation.rng.choice([cast.leader, cast.leader, *cast.followers])
    await down(simulation, victim, how)
    return cast, victim


async def one_or_all_down(simulation: Simulation, how: str = "stopped") -> tuple[Cast, Node]:
    """Load, and then all brokers end, or only the victim, which leads or follows."""
    if simulation.rng.random() < 0.5:
        return await all_down(simulation, how)
    cast = await load(simulation)
    victim = simulation.rng.choice([cast.leader, *cast.followers])
    await bring_down(simulation, [victim], how)
    return cast, victim


async def all_up(simulation: Simulation, victim: Node) -> None:
    """Start all brokers that are down, the victim first, or in any order, or the others much later."""
    damage_of(simulation).assess()
    others = [node for node in simulation.nodes if node is not victim]
    simulation.rng.shuffle(others)
    order = [victim, *others]
    match simulation.rng.choice(("victim first", "any order", "others late")):
        case "victim first":
            await start(simulation, order)
        case "any order":
            simulation.rng.shuffle(order)
            await start(simulation, order)
        case _:
            await _staggered(simulation, order[:-1], order[-1:])


async def staggered(simulation: Simulation, first: Sequence[Node], later: Sequence[Node]) -> None:
    """Start some brokers, leave them alone for a while, and then start the others."""
    damage_of(simulation).assess()
    await _staggered(simulation, first, later)


async def _staggered(simulation: Simulation, first: Sequence[Node], later: Sequence[Node]) -> None:
    await start(simulation, first)
    await pause(simulation, 1.0, 5.0)
    await start(simulation, later)
