"""Seeded runs of two linked clusters: what happens is drawn, and everything is checked after each event."""

from __future__ import annotations

from collections.abc import Callable

from penstock.linking.mirror import Phase
from penstock.model.config.mirrored_topics import MirrorState
from tests.linking.simulated_clusters import SimulatedCluster
from tests.linking.simulated_link import LinkSimulation, Violation, check_history

__all__ = ["run"]

_EVENTS = 400
#: a log that has lost something has lost it in the next events, too
_CHECKED_EVERY = 5
_CALM_EVENTS = 300


def run(seed: int, events: int = _EVENTS) -> LinkSimulation:
    """Run one seed. A Violation names the seed, and has the trace."""
    simulation = LinkSimulation(seed)
    try:
        for nth in range(events):
            _event(simulation)
            if not nth % _CHECKED_EVERY:
                _check(simulation)
        _calm_down(simulation)
    except (Violation, AssertionError) as e:
        raise Violation(f"seed {seed} at {simulation.now}: {e}\n" + "\n".join(simulation.trace)) from e
    return simulation


def _event(simulation: LinkSimulation) -> None:
    random = simulation.random
    simulation.now += random.randrange(1, 4)
    simulation._deliver()
    simulation.work()
    for cluster in (simulation.source, simulation.here):
        cluster.replicate(random.randrange(3))
        if random.random() < 0.7:
            cluster.apply(random.randrange(3))
    if random.random() < 0.4:
        simulation.produce()
    if random.random() < 0.1:
        simulation.end_transactions()
    if random.random() < 0.1:
        simulation.take_over_offsets()
    if random.random() < 0.2:
        simulation.compare()
    if random.random() < 0.12:
        _fault(simulation)
    if simulation.is_hasty and simulation.failovers == 0 and random.random() < 0.3:
        random.choice([LinkSimulation.promote, LinkSimulation.give_promotion_up])(simulation)
    if random.random() < (0.01 if simulation.theme else 0.06):
        random.choice(_OPERATIONS)(simulation)


_OPERATIONS: list[Callable[[LinkSimulation], None]] = [
    LinkSimulation.promote,
    LinkSimulation.promote,
    LinkSimulation.promote,
    LinkSimulation.give_promotion_up,
    LinkSimulation.fail_over,
    LinkSimulation.begin_return,
    LinkSimulation.begin_return,
    LinkSimulation.cut_logs,
    LinkSimulation.cut_logs,
]


def _fault(simulation: LinkSimulation) -> None:
    random = simulation.random
    cluster = random.choice([simulation.source, simulation.here])
    kind = random.randrange(9)
    if simulation.theme and simulation.source.topic is None and random.random() < 0.5:
        if simulation.theme == "unclean":
            _elect_uncleanly(simulation.source)
        elif random.random() < 0.1:
            simulation.recreate()
        return
    if kind == 0:
        cluster.crash(random.randrange(3))
    elif kind in (1, 2):
        cluster.start(random.randrange(3))
        if cluster.leader < 0:
            cluster.elect()
    elif kind == 3:
        cluster.elect()
    elif kind == 4 and simulation.source.topic is None:
        _elect_uncleanly(simulation.source)
    elif kind == 5:
        simulation.cut.add(random.choice(["to", "from"]))
    elif kind == 6:
        simulation.cut.clear()
    elif kind == 7:
        leader = cluster.led()
        if leader is not None and random.random() < 0.3:
            cluster.expire(leader.log.high_watermark - random.randrange(6))
    elif random.random() < 0.05:
        simulation.recreate()


def _elect_uncleanly(cluster: SimulatedCluster) -> None:
    """A replica that was away for a while leads, without what was committed meanwhile."""
    away = [n for n in range(3) if n not in cluster.isr]
    if away:
        cluster.start(away[0])
        cluster.elect(unclean=True)
    else:
        cluster.crash(cluster.random.choice([n for n in range(3) if n != cluster.leader]))


def _check(simulation: LinkSimulation) -> None:
    for cluster in (simulation.source, simulation.here):
        for index, replica in enumerate(cluster.replicas):
            check_history(replica.log, f"{cluster.name}{index}")
        _check_durable(cluster)
    if simulation.source.is_writable and simulation.here.is_writable and not simulation.failovers:
        raise Violation("both copies are writable without a failover")


def _check_durable(cluster: SimulatedCluster) -> None:
    """What was committed is in the log of the leader, or in the quarantine."""
    leader = cluster.led()
    if leader is None:
        return
    has = {each.chain for each in leader.log.batches}
    for chain, batch in cluster.committed.items():
        if chain not in has and chain not in cluster.quarantine and chain not in cluster.lost:
            raise Violation(f"{cluster.name} has lost its committed batch at {batch.base}")


def _calm_down(simulation: LinkSimulation) -> None:
    """Without faults and producers, a mirror that has not diverged gets everything."""
    simulation.cut.clear()
    simulation._loss, simulation._delay = 0.0, 1
    for cluster in (simulation.source, simulation.here):
        for index in range(3):
            cluster.start(index)
        if cluster.leader < 0:
            cluster.elect()
    topic = simulation.here.topic
    lifted_at = topic.source_id if topic and topic.state is MirrorState.PROMOTED and topic.is_lifted else None
    is_mirror = topic is not None and topic.state is MirrorState.MIRRORING
    for _ in range(_CALM_EVENTS if is_mirror else _CALM_EVENTS // 10):
        simulation.now += 5
        simulation._deliver()
        simulation.work()
        for cluster in (simulation.source, simulation.here):
            for index in range(3):
                cluster.apply(index)
                cluster.replicate(index)
        _check(simulation)
        source, here = simulation.source.led(), simulation.here.led()
        mirror = simulation._mirror
        if topic is None or topic.state is not MirrorState.MIRRORING or mirror is None:
            continue
        if topic.source_id != simulation.source.topic_id or simulation.source.lost:
            return
        assert source is not None and here is not None, "all brokers are up"
        has_all = here.log.high_watermark == source.log.high_watermark
        # The fence of a promotion that was given up is lifted by a request.
        is_stuck = simulation.source.is_fenced and not simulation.failovers
        if has_all and mirror.phase is Phase.MIRRORING and not is_stuck:
            return
    if simulation.source.is_fenced and simulation.source.topic_id == lifted_at:
        raise Violation("the topic was promoted without a fence, and the one of a former promotion stays")
    if is_mirror and simulation.source.is_fenced:
        raise Violation("the topic is mirrored, and its source takes no records")
    if is_mirror:
        raise Violation(
            f"the mirror does not get everything: {simulation._mirror and simulation._mirror.reason}"
        )
