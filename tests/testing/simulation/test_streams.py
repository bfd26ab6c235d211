"""A streams group through failovers: tasks, internal topics, convergence (KIP-1071)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.testing.simulation.cluster import TOPIC
from penstock.testing.simulation.scenario import Options, Simulation
from tests.testing.simulation.streams_members import INTERNAL, StreamsApplication, StreamsMember

#: members that vanish without leaving are removed soon
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "300",
    "group.streams.assignment.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
}


@pytest.mark.parametrize(("seed", "brokers"), [(1, 3), (3, 1)])
def test_tasks_converge_and_no_task_is_assigned_twice_in_an_epoch(seed: int, brokers: int) -> None:
    """Brokers crash, are cut off, and hang; members lose responses, crash, and leave."""
    drawn = Options.draw(seed, brokers)
    options = replace(
        drawn, operated=False, directed_fault=None, disaster=None, producers=1, consumers=0, members=0
    )
    simulation = Simulation(seed, options, SETTINGS)
    cluster = simulation.cluster
    application = StreamsApplication(TOPIC, options.partitions)
    for number in range(3):
        client = cluster.client(f"streams-member-{number}")
        cluster.workers.append((client, StreamsMember(client, application, pause_s=0.2)))
    outcome = simulation.run()
    assert outcome.violation is None
    assert application.has_converged
    assert len(set(application.given.values())) > 1
    for name in INTERNAL:
        (topic_id,) = application.topic_ids[name]
        assert topic_id
