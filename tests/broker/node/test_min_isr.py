"""All nodes count by one minimum ISR, whatever their config files say.

A leader that acknowledged with fewer in sync than the controller counts with might be followed by one that
lacks some of it.
"""

from __future__ import annotations

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.base.logs import get_logger
from penstock.metadata.policy import MIN_ISR, min_isr
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import TOPIC, make_topic, replica

OF_FILES = {1: "1", 2: "2", 3: "3"}


def counted_with(broker: Broker) -> set[int]:
    """The minimum as its own partition, and as its controller, has it."""
    return {replica(broker).log.config.min_insync_replicas, min_isr(broker.stages.cluster.image, TOPIC, 3)}


def test_files_that_differ_do_not_make_nodes_count_differently() -> None:
    async def main() -> None:
        nodes = Cluster(range(1, 4))
        for node, value in OF_FILES.items():
            nodes.settings[node][MIN_ISR] = value
        try:
            await nodes.start()
            founder = await nodes.settled()
            expected = {int(OF_FILES[founder.stages.config.node_id])}
            await make_topic(nodes, 1, 2, 3, configs={}, min_isr=None)
            assert [counted_with(nodes[node]) for node in OF_FILES] == [expected] * 3

            # Nor does it change with the controller.
            await nodes.kill(founder.stages.config.node_id)
            await nodes.settled()
            await nodes.start(founder.stages.config.node_id)
            await eventually(
                lambda: all(
                    founder.stages.config.node_id in b.stages.cluster.image.brokers
                    for b in nodes.brokers.values()
                )
            )
            assert [counted_with(nodes[node]) for node in OF_FILES] == [expected] * 3
        finally:
            await nodes.close()

    run(main())


def test_a_file_with_another_min_isr_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(
        get_logger("broker"), "warning", lambda event, **fields: logged.append((event, fields))
    )

    async def main() -> None:
        nodes = Cluster([1], config={MIN_ISR: "2"})
        try:
            await nodes.start()
            await nodes.stop(1)
            assert logged == []
            nodes.settings[1] |= {MIN_ISR: "1", "num.replica.alter.log.dirs.threads": "2"}
            await nodes.start()
            assert nodes[1].stages.config.min_insync_replicas == 2
        finally:
            await nodes.close()

    run(main())
    assert [(event, fields["name"]) for event, fields in logged] == [
        ("setting_without_effect", MIN_ISR),
        ("setting_without_effect", "num.replica.alter.log.dirs.threads"),
    ]
    assert "penstock config set --all-brokers min.insync.replicas=1" in logged[0][1]["reason"]
    assert "replicas are moved one after the other" in logged[1][1]["reason"]
