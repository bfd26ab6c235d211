"""Plots: a few faults in the order that leads into one race; drawn ones would meet it once in a long while.

A plot knows who leads and who follows; moments and lengths are the seed's. Each is there for a rule of the
design that prevents a known loss. Where the cluster does not come into the state that a plot waits for, it
ends with `CameToNothing`, and nothing was tested but a few faults. What it has broken is mended with
everything else when the scenario heals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.cast import Cast, casts, newest_image, replica_on
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.workload import Producer

if TYPE_CHECKING:
    from penstock.testing.simulation.scenario import Simulation

__all__ = ["PLOTS", "CameToNothing", "Plot"]

Plot: TypeAlias = Callable[["Simulation"], Awaitable[None]]
#: about as long as a message takes: what a plot waits for may be over with the next one
_GLANCE_S: Final = 0.0002
#: virtual seconds that a plot waits for what has to happen before it goes on
_PATIENCE_S: Final = 5.0
_SLOWISH: Final = Link(latency_s=(0.3, 0.6))
_SLOW: Final = Link(latency_s=(0.3, 1.2))
_SLOW_SYNC_S: Final = (0.3, 1.0)
_SYNC_S: Final = (0.0001, 0.002)


class CameToNothing(Exception):
    """The cluster was never in the state that a plot needs."""


async def late_request(simulation: Simulation) -> None:
    """AlterPartition arrives late: the replica that it adds has died by then, or is back with less."""
    cast = await _cast(simulation, _is_led_elsewhere)
    network, leader, joining = simulation.loop.network, cast.leader, cast.bystanders[0]
    joining.kill()
    await _until(lambda: joining.id not in _isr(leader, cast.partition))
    await _pause(simulation, 0.2, 1.0)
    network.set_link(leader.name, cast.controller.name, _SLOW)
    joining.boot()
    await _until(lambda: joining.id in _proposed(leader, cast.partition))
    network.partition([leader.name], [joining.name])
    if simulation.rng.random() < 0.5:
        joining.kill()
    else:
        joining.power_off()
        await _pause(simulation, 0.001, 0.1)
        joining.boot()
    await _pause(simulation, 1.5, 2.5)


async def unheard_answer(simulation: Simulation) -> None:
    """A replica has joined the ISR, its leader does not hear of that, and goes on writing without it.

    The controller itself is the replica: cut off from the leader in one direction, it can neither fetch nor
    answer, but hears the leader well.
    """
    cast = await _cast(simulation, lambda cast: cast.controller in cast.followers)
    network, partition = simulation.loop.network, cast.partition
    leader, joining = cast.leader, cast.controller
    network.cut(joining.name, leader.name)
    await _until(lambda: leader.id in _proposed(leader, partition))
    network.restore(joining.name, leader.name)
    await _until(lambda: joining.id not in _isr(leader, partition))
    await _until(lambda: joining.id in _proposed(leader, partition))
    for node in cast.followers:
        network.cut(node.name, leader.name)
    # For longer than a replica counts as caught up, and so as good as in sync.
    await _pause(simulation, 1.1, 1.6)
    for node in cast.bystanders:
        network.restore(node.name, leader.name)
    await _pause(simulation, 0.8, 1.5)


async def deposed(simulation: Simulation) -> None:
    """A leader that its controller no longer hears is replaced; what it had asked for arrives after that."""
    cast = await _cast(simulation, _has_the_controller_for_heir)
    network, leader, controller = simulation.loop.network, cast.leader, cast.controller
    network.set_link(leader.name, controller.name, _SLOWISH)
    network.partition([leader.name], [cast.bystanders[0].name])
    await _until(lambda: controller.id in _proposed(leader, cast.partition))
    network.cut(leader.name, controller.name)
    await _until(lambda: _leader_id(simulation, cast.partition) not in (leader.id, -1))
    await _pause(simulation, 0.2, 1.0)
    network.restore(leader.name, controller.name)
    await _pause(simulation, 1.0, 2.0)


async def behind_the_epoch(simulation: Simulation) -> None:
    """A new leader does not know yet what was committed last; a replica that lacks just that asks it."""
    cast = await _cast(simulation)
    heir, behind = cast.followers
    end_offset = _end(behind, cast.partition)
    behind.kill()
    await _until(lambda: _high_watermark(cast.leader, cast.partition) > end_offset)
    cast.leader.kill()
    await _pause(simulation, 0.01, 0.3)
    behind.boot()
    await _until(lambda: behind.id in _proposed(heir, cast.partition))
    simulation.loop.network.cut(heir.name, behind.name)
    cast.leader.boot()
    await _pause(simulation, 1.0, 2.5)


async def another_life(simulation: Simulation) -> None:
    """A replica comes back with less than its leader knew it to have, and cannot say so at first."""
    cast = await _cast(simulation)
    back = simulation.rng.choice(cast.bystanders)
    simulation.loop.network.partition([cast.leader.name], [back.name])
    back.power_off()
    await _pause(simulation, 0.001, 0.05)
    back.boot()
    await _pause(simulation, 0.8, 1.5)


async def lost_tail(simulation: Simulation) -> None:
    """The quorum's leader loses power before its disk has what its followers already have."""
    cast = await _cast(simulation)
    controller, other = cast.controller, cast.bystanders[0]
    controller.sync_s = _SLOW_SYNC_S
    other.kill()
    await _until(lambda: _is_ahead(simulation.nodes, controller))
    controller.power_off()
    controller.sync_s = _SYNC_S
    await _pause(simulation, 0.001, 0.2)
    controller.boot()
    await _pause(simulation, 0.05, 0.5)
    other.boot()
    await _pause(simulation, 1.0, 2.0)


async def stuck_answer(simulation: Simulation) -> None:
    """A fetch is answered, and the answer arrives after the records in it, and some before, have been cut.

    The answer is of a leader that has been replaced in between, and leads again.
    """
    cast = await _cast(simulation, _has_the_controller_for_heir)
    network, partition, leader = simulation.loop.network, cast.partition, cast.leader
    heir, follower = cast.followers
    network.cut(heir.name, leader.name)
    await _until(lambda: _end(follower, partition) > _end(heir, partition))
    network.cut(leader.name, follower.name)
    await _until(lambda: _end(leader, partition) > _end(follower, partition))
    for client, worker in simulation.workers:
        if isinstance(worker, Producer):
            # What it wrote next could take the place of what is cut.
            client.process.pause()
    leader.pause()
    await _until(lambda: _leader_id(simulation, partition) not in (leader.id, -1))
    network.restore(heir.name, leader.name)
    leader.resume()
    await _until(lambda: _leader_id(simulation, partition) == leader.id)
    await _pause(simulation, 0.0, 0.3)
    network.restore(leader.name, follower.name)
    await _pause(simulation, 0.5, 1.0)


async def nobody_left(simulation: Simulation) -> None:
    """All that are in sync go, one after the other, while one that lacks records stays."""
    cast = await _cast(simulation)
    first, second = cast.followers
    simulation.loop.network.partition([cast.leader.name], [first.name])
    await _until(lambda: first.id not in _isr(cast.leader, cast.partition))
    second.power_off()
    await _pause(simulation, 0.0, 0.2)
    second.boot()
    await _until(lambda: second.broker is not None)
    cast.leader.kill()
    await _pause(simulation, 0.5, 2.0)


PLOTS: Final[dict[str, Plot]] = {
    plot.__name__: plot
    for plot in (
        late_request,
        unheard_answer,
        deposed,
        behind_the_epoch,
        another_life,
        lost_tail,
        stuck_answer,
        nobody_left,
    )
}


def _is_led_elsewhere(cast: Cast) -> bool:
    return cast.leader is not cast.controller


def _has_the_controller_for_heir(cast: Cast) -> bool:
    return cast.controller is cast.followers[0]


async def _cast(simulation: Simulation, fits: Callable[[Cast], bool] = lambda cast: True) -> Cast:
    """Of a partition that `fits`, when all is well and the load has run for a moment."""
    await _pause(simulation, 0.1, 0.6)
    await _until(lambda: bool(casts(simulation.nodes)))
    ours = [cast for cast in casts(simulation.nodes) if cast.partition in simulation.partitions]
    fitting = [cast for cast in ours if fits(cast)]
    if not fitting:
        raise CameToNothing
    chosen = simulation.rng.choice(fitting)
    followers = ", ".join(node.name for node in chosen.followers)
    simulation.note("plot", f"{chosen.leader.name} leads {followers} in {chosen.partition}")
    return chosen


async def _pause(simulation: Simulation, low_s: float, high_s: float) -> None:
    await asyncio.sleep(simulation.rng.uniform(low_s, high_s))


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for something that has to come about."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while not condition():
        if loop.time() > deadline:
            raise CameToNothing
        await asyncio.sleep(_GLANCE_S)


def _isr(node: Node, partition: TopicPartition) -> list[int]:
    """As `node` knows it."""
    topic = None if node.broker is None else node.broker.image.topics.get(partition.topic)
    return [] if topic is None else topic.partitions[partition.partition].isr


def _leader_id(simulation: Simulation, partition: TopicPartition) -> int:
    topic = newest_image(simulation.nodes).topics.get(partition.topic)
    return -1 if topic is None else topic.partitions[partition.partition].leader


def _proposed(leader: Node, partition: TopicPartition) -> list[int]:
    """The ISR that the leader has asked for, and has no answer."""
    replica = replica_on(leader, partition)
    if replica is None or replica.leadership is None or replica.leadership.state.proposal is None:
        return []
    return [member.broker for member in replica.leadership.state.proposal.isr]


def _end(node: Node, partition: TopicPartition) -> int:
    replica = replica_on(node, partition)
    return -1 if replica is None else replica.log.end_offset


def _high_watermark(node: Node, partition: TopicPartition) -> int:
    replica = replica_on(node, partition)
    return -1 if replica is None else replica.log.high_watermark


def _is_ahead(nodes: list[Node], controller: Node) -> bool:
    """Whether somebody has records of the quorum that the disk of its leader does not."""
    if controller.broker is None:
        return False
    flushed = controller.broker.node.quorum.state.flushed_offset
    others = [node.broker for node in nodes if node.broker is not None and node is not controller]
    return any(broker.node.log.end_offset > flushed for broker in others)
