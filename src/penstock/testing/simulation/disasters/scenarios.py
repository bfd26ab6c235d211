"""Disasters in the order that leads into a known loss, one per kind.

Each is a coroutine that a simulation runs instead of drawn faults: clients write, brokers end, disks are
tampered with, brokers start. `Damage.assess` says what has to hold from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model.ids import OFFSETS_TOPIC
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.disasters.stage import (
    DOWN,
    Disaster,
    all_down,
    all_up,
    backup_at_clean_stop,
    below,
    bring_down,
    damage_of,
    down,
    folder_of,
    load,
    one_or_all_down,
    pause,
    staggered,
    start,
    until,
)
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.plots import CameToNothing

if TYPE_CHECKING:
    from penstock.testing.simulation.scenario import Simulation

__all__ = ["DIRECTED", "SINGLE"]

_DAY_MS: Final = 86_400_000
_TAIL_BYTES: Final = 4096
#: how long a broker with a wrong clock may go on leading: some heartbeats and elections
_HAND_OVER_S: Final = 10.0


async def folder_removed(simulation: Simulation) -> None:
    """A partition's or a topic's folder is removed on one broker after a clean stop of all."""
    cast, victim = await all_down(simulation, "stopped")
    damage = damage_of(simulation)
    folder = folder_of(simulation, victim, cast.partition)
    damage.remove(victim, simulation.rng.choice((folder.path, folder.topic_path)))
    await all_up(simulation, victim)


async def folder_rolled_back(simulation: Simulation) -> None:
    """Partition folders are rolled back to an older copy, on the broker that stopped last."""
    cast = await load(simulation)
    victim = simulation.rng.choice([cast.leader, *cast.followers])
    damage = damage_of(simulation)
    backup = (await backup_at_clean_stop(simulation, [victim]))[victim.id]
    await down(simulation, victim, "stopped")
    topic = simulation.rng.choice((cast.partition.topic, cast.partition.topic, OFFSETS_TOPIC))
    for folder in damage.folders(victim):
        if folder.partition.topic == topic:
            damage.restore(victim, folder.path, below(backup, folder.path))
    await all_up(simulation, victim)


async def top_segment_removed(simulation: Simulation) -> None:
    """The newest segment is removed on the broker that stopped last."""
    cast, victim = await all_down(simulation, "stopped")
    damage = damage_of(simulation)
    damage.remove(victim, damage.segments(victim, folder_of(simulation, victim, cast.partition))[-1])
    await all_up(simulation, victim)


async def directory_rolled_back(simulation: Simulation) -> None:
    """The second of two data directories is rolled back to an older copy that was closed cleanly."""
    cast = await load(simulation)
    victim = simulation.rng.choice([cast.leader, *cast.followers])
    backup = (await backup_at_clean_stop(simulation, [victim]))[victim.id]
    await down(simulation, victim, "stopped")
    second = victim.directories[1]
    damage_of(simulation).restore(victim, second, below(backup, second))
    await all_up(simulation, victim)


async def tail_lost(simulation: Simulation) -> None:
    """All brokers are killed in turn, and the last one loses the end of a log."""
    how = simulation.rng.choice(("killed", "powerless"))
    cast, victim = await all_down(simulation, how)
    damage = damage_of(simulation)
    folder = folder_of(simulation, victim, cast.partition)
    last = damage.segments(victim, folder)[-1]
    match simulation.rng.choice(("bytes", "segment", "folder")):
        case "bytes":
            size = victim.disk.size(last)
            damage.cut(victim, last, max(0, size - simulation.rng.randint(1, _TAIL_BYTES)))
        case "segment":
            damage.remove(victim, last)
        case _:
            damage.remove(victim, folder.path)
    await all_up(simulation, victim)


async def operator_gives_up(simulation: Simulation) -> None:
    """All but one lose a log; an operator has one of them elected, and the complete one comes back later."""
    cast = await load(simulation)
    replicas = [cast.leader, *cast.followers]
    simulation.rng.shuffle(replicas)
    sound, *empty = replicas
    order = list(simulation.nodes)
    simulation.rng.shuffle(order)
    await bring_down(simulation, order, "killed")
    damage = damage_of(simulation)
    for node in empty:
        damage.remove(node, folder_of(simulation, node, cast.partition).path)
    damage.assess()
    damage.accept_loss()
    await start(simulation, [node for node in order if node is not sound])
    await simulation.elect_unclean(cast.partition)
    await pause(simulation, 0.5, 1.5)
    await start(simulation, [sound])


async def middle_segment_removed(simulation: Simulation) -> None:
    """A segment in the middle of a log is removed on one replica."""
    cast, victim = await one_or_all_down(simulation)
    damage = damage_of(simulation)
    segments = damage.segments(victim, folder_of(simulation, victim, cast.partition))
    if len(segments) < 3:
        raise CameToNothing
    damage.remove(victim, simulation.rng.choice(segments[1:-1]))
    await all_up(simulation, victim)


async def first_segment_removed(simulation: Simulation) -> None:
    """The oldest segment is removed on one replica, which leads later."""
    cast, victim = await one_or_all_down(simulation)
    damage = damage_of(simulation)
    segments = damage.segments(victim, folder_of(simulation, victim, cast.partition))
    if len(segments) < 2:
        raise CameToNothing
    damage.remove(victim, segments[0])
    await all_up(simulation, victim)


async def metadata_flipped(simulation: Simulation) -> None:
    """One bit of the metadata log changes, on one voter or on all but one."""
    how = simulation.rng.choice(("stopped", "stopped", "killed"))
    _, victim = await all_down(simulation, how)
    others = [node for node in simulation.nodes if node is not victim]
    count = simulation.rng.choice((1, max(1, len(simulation.nodes) - 1)))
    for node in [victim, *others][:count]:
        damage_of(simulation).flip_metadata(node, simulation.rng)
    await all_up(simulation, victim)


async def voter_wiped(simulation: Simulation) -> None:
    """A voter with a new disk starts together with some that were down while a topic was made."""
    await load(simulation)
    nodes = list(simulation.nodes)
    simulation.rng.shuffle(nodes)
    minority = (len(nodes) - 1) // 2
    stale, wiped, sound = nodes[:minority], nodes[minority], nodes[minority + 1 :]
    await bring_down(simulation, stale, "stopped")
    await simulation.make_topic("late", replicas=2)
    await pause(simulation, 0.5, 1.0)
    await bring_down(simulation, [wiped, *sound], simulation.rng.choice(("stopped", "killed")))
    damage_of(simulation).wipe(wiped)
    await staggered(simulation, [*stale, wiped], sound)


async def majority_rolled_back(simulation: Simulation) -> None:
    """A majority of the voters is rolled back, and starts before the others."""
    await load(simulation)
    nodes = list(simulation.nodes)
    simulation.rng.shuffle(nodes)
    rolled_back, sound = nodes[: len(nodes) // 2 + 1], nodes[len(nodes) // 2 + 1 :]
    backups = await backup_at_clean_stop(simulation, rolled_back)
    await simulation.make_topic("late", replicas=3)
    await pause(simulation, 0.5, 1.0)
    await bring_down(simulation, nodes, "stopped")
    for node in rolled_back:
        path = node.directories[0]
        damage_of(simulation).restore(node, path, below(backups[node.id], path))
    await staggered(simulation, rolled_back, sound)


async def clock_ahead(simulation: Simulation) -> None:
    """One broker's clock is days ahead, with a retention of one day."""
    await _clock_apart(simulation, simulation.rng.choice((2, 8)))


async def clock_behind(simulation: Simulation) -> None:
    """One broker's clock is days behind: records of now look as if they came from the future."""
    await _clock_apart(simulation, -2)


async def folders_swapped(simulation: Simulation) -> None:
    """Two partition folders of one broker are exchanged."""
    _, victim = await one_or_all_down(simulation)
    damage = damage_of(simulation)
    folders = damage.folders(victim)
    if len(folders) < 2:
        raise CameToNothing
    damage.swap(victim, *simulation.rng.sample(folders, 2))
    await all_up(simulation, victim)


async def foreign_files(simulation: Simulation) -> None:
    """Files and links that no broker made lie in a data directory."""
    cast, victim = await one_or_all_down(simulation)
    damage = damage_of(simulation)
    damage.litter(victim, folder_of(simulation, victim, cast.partition), simulation.rng)
    await all_up(simulation, victim)


async def single_metadata_flipped(simulation: Simulation) -> None:
    """One bit of the metadata log of a broker that is a cluster of its own changes."""
    (node,) = simulation.nodes
    await until(lambda: node.broker is not None)
    await pause(simulation, 0.8, 1.5)
    await bring_down(simulation, [node], simulation.rng.choice(("stopped", "killed")))
    damage_of(simulation).flip_metadata(node, simulation.rng)
    damage_of(simulation).assess()
    await start(simulation, [node])


async def single_directory_rolled_back(simulation: Simulation) -> None:
    """The directory with the metadata of a single broker is rolled back to before a topic was made."""
    (node,) = simulation.nodes
    await until(lambda: node.broker is not None)
    await bring_down(simulation, [node], "stopped")
    backup = damage_of(simulation).backup(node, "")
    node.boot()
    await until(lambda: node.broker is not None)
    for name in ("late", "later"):
        await simulation.make_topic(name, replicas=1)
    await pause(simulation, 0.8, 1.5)
    await bring_down(simulation, [node], simulation.rng.choice(("stopped", "killed")))
    home = node.directories[0]
    damage_of(simulation).restore(node, home, below(backup, home))
    damage_of(simulation).assess()
    await start(simulation, [node])


async def _clock_apart(simulation: Simulation, days: int) -> None:
    cast = await load(simulation)
    node = simulation.rng.choice([cast.leader, *cast.followers])
    restarts = simulation.rng.random() < 0.5
    if restarts:
        await bring_down(simulation, [node], simulation.rng.choice(DOWN))
    node.clock.jump(days * _DAY_MS)
    node.note(f"disaster: clock jumps by {days} days")
    damage_of(simulation).assess()
    node.boot()
    # Long enough for preferred leaders to be elected, and for retention to look at every log.
    await pause(simulation, 3.0, 6.0)
    await _hands_over(simulation, node)


async def _hands_over(simulation: Simulation, node: Node) -> None:
    """A broker with a wrong clock leads nothing that another in-sync replica can lead."""
    others = [each for each in simulation.nodes if each is not node]

    def leads() -> str | None:
        image = max((each.broker.image for each in others if each.broker), key=lambda each: each.offset)
        led = [p for p in image.partitions if p.leader == node.id and len(p.isr) > 1]
        return str(led[0]) if led else None

    deadline = simulation.loop.time() + _HAND_OVER_S
    while (led := leads()) is not None:
        if simulation.loop.time() > deadline:
            raise Violation("wrong clock leads", f"{node.name}: {led}")
        await pause(simulation, 0.1, 0.1)


DIRECTED: Final[dict[str, Disaster]] = {
    disaster.__name__: disaster
    for disaster in (
        folder_removed,
        folder_rolled_back,
        top_segment_removed,
        directory_rolled_back,
        tail_lost,
        operator_gives_up,
        middle_segment_removed,
        first_segment_removed,
        metadata_flipped,
        voter_wiped,
        majority_rolled_back,
        clock_ahead,
        clock_behind,
        folders_swapped,
        foreign_files,
        single_metadata_flipped,
        single_directory_rolled_back,
    )
}
#: those of a broker that is a cluster of its own
SINGLE: Final = frozenset({"single_metadata_flipped", "single_directory_rolled_back"})
