"""Disasters that a seed puts together: some brokers, some ways to end, some damage to each disk.

Damage has a scope (segment, checkpoint, partition folder, topic folder, data directory, broker, metadata log,
vote) and a kind (remove, cut, zero, flip, roll back, swap, add). At least one broker's disk is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.storage.memory import Directory
from penstock.testing.simulation.disasters.rot import flip_somewhere
from penstock.testing.simulation.disasters.small_files import WAYS, spoil_some
from penstock.testing.simulation.disasters.stage import (
    DOWN,
    all_up,
    backup_at_clean_stop,
    below,
    bring_down,
    damage_of,
    load,
)
from penstock.testing.simulation.disasters.tampering import Folder
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.plots import CameToNothing

if TYPE_CHECKING:
    from penstock.testing.simulation.scenario import Simulation

__all__ = ["mixture"]

_DAY_MS: Final = 86_400_000
#: what happens to one disk; a copy of it from an earlier clean stop, if there is one
Blow: TypeAlias = Callable[["Simulation", Node, Directory | None], None]


async def mixture(simulation: Simulation) -> None:
    """One broker up to all but one end somehow, and lose or regain something meanwhile."""
    rng = simulation.rng
    await load(simulation)
    victims = rng.sample(simulation.nodes, rng.choice((1, 1, 2, len(simulation.nodes) - 1)))
    backed_up = [node for node in victims if rng.random() < 0.5]
    backups = await backup_at_clean_stop(simulation, backed_up)
    order = list(simulation.nodes) if rng.random() < 0.6 else list(victims)
    rng.shuffle(order)
    how = rng.choice((*DOWN, "any"))
    for node in order:
        await bring_down(simulation, [node], rng.choice(DOWN) if how == "any" else how)
    for node in victims:
        for _ in range(rng.choice((1, 1, 2))):
            # What an earlier blow has removed cannot be damaged any more.
            with suppress(CameToNothing):
                rng.choice(_BLOWS)(simulation, node, backups.get(node.id))
    if rng.random() < 0.1:
        node = rng.choice(simulation.nodes)
        node.clock.jump(rng.choice((-2, 2, 8)) * _DAY_MS)
        node.note("disaster: clock jumps by days")
    await all_up(simulation, victims[0])


def _folder(simulation: Simulation, node: Node) -> Folder:
    folders = damage_of(simulation).folders(node)
    if not folders:
        raise CameToNothing
    return simulation.rng.choice(folders)


def _segment(simulation: Simulation, node: Node) -> str:
    found = damage_of(simulation).segments(node, _folder(simulation, node))
    if not found:
        raise CameToNothing
    return simulation.rng.choice(found)


# -- segments


def _remove_segment(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).remove(node, _segment(simulation, node))


def _cut_segment(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    path = _segment(simulation, node)
    damage_of(simulation).cut(node, path, simulation.rng.randint(0, node.disk.size(path)))


def _zero_segment(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    path = _segment(simulation, node)
    begin, end = sorted(simulation.rng.randint(0, node.disk.size(path)) for _ in range(2))
    damage_of(simulation).zero(node, path, begin, end)


def _flip_segment(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    flip_somewhere(simulation, node, _segment(simulation, node), 0)


# -- files beside the segments


def _spoil_files(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    spoil_some(simulation, node)


def _spoil_vote(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).spoil_vote(node, simulation.rng.choice(WAYS))


# -- folders


def _remove_folder(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).remove(node, _folder(simulation, node).path)


def _empty_folder(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    folder = _folder(simulation, node)
    damage_of(simulation).restore(node, folder.path, Directory())


def _remove_topic(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).remove(node, _folder(simulation, node).topic_path)


def _roll_back_folder(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    folder = _folder(simulation, node)
    if backup is not None:
        damage_of(simulation).restore(node, folder.path, below(backup, folder.path))


def _swap_folders(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    one, other = _folder(simulation, node), _folder(simulation, node)
    if one != other:
        damage_of(simulation).swap(node, one, other)


# -- directories and brokers


def _roll_back_directory(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    path = simulation.rng.choice(node.directories)
    if backup is not None:
        damage_of(simulation).restore(node, path, below(backup, path))


def _roll_back_broker(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    if backup is not None:
        for path in node.directories:
            damage_of(simulation).restore(node, path, below(backup, path))


def _wipe(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).wipe(node)


# -- metadata


def _flip_metadata(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).flip_metadata(node, simulation.rng)


# -- foreign files


def _litter(simulation: Simulation, node: Node, backup: Directory | None) -> None:
    damage_of(simulation).litter(node, _folder(simulation, node), simulation.rng)


_BLOWS: Final[tuple[Blow, ...]] = (
    _remove_segment,
    _remove_segment,
    _cut_segment,
    _cut_segment,
    _zero_segment,
    _flip_segment,
    _flip_segment,
    _spoil_files,
    _spoil_files,
    _spoil_vote,
    _remove_folder,
    _empty_folder,
    _remove_topic,
    _roll_back_folder,
    _roll_back_folder,
    _swap_folders,
    _roll_back_directory,
    _roll_back_broker,
    _wipe,
    _flip_metadata,
    _litter,
)
