"""Damage on one replica's disk: found, reported, never served, and replaced from a healthy replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.base.system_ports import OsFiles
from penstock.broker.healing.scrubber import Scrubber
from penstock.broker.replica.partition import Partition
from penstock.model.errors import PenstockError
from penstock.storage.segment_files import LOG
from tests.broker.healing.rot import damage, flip
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import (
    make_topic,
    replica,
    stored,
)
from tests.broker.sealed_topics import sealed_topic


@pytest.mark.process
def test_files_are_read_in_another_process(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3], config={"penstock.memory": "false"})
        for node in (1, 2, 3):
            nodes.disks[node] = OsFiles()
            nodes.settings[node]["log.dirs"] = str(tmp_path / str(node))
        try:
            await nodes.start()
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[3]))
            damage(nodes, 3)
            await nodes[3].stages.healing.scrubber.scrub_all()
            assert nodes[3].stages.storage.metrics.corruption_repaired == 1
            assert stored(replica(nodes[3])) == healthy
        finally:
            await nodes.close()

    run(main())


def test_rounds_come_by_themselves() -> None:
    async def main() -> None:
        async with cluster(3, config={"penstock.scrub.interval.ms": "10"}) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            for node in (1, 3):
                damage(nodes, node)
            await eventually(
                lambda: all(nodes[n].stages.storage.metrics.corruption_repaired == 1 for n in (1, 3))
            )
            assert [stored(replica(nodes[node])) for node in (1, 2, 3)] == [healthy] * 3
            assert nodes[2].stages.storage.metrics.corruption_found == 0

    run(main())


async def _find_nothing(self: Scrubber) -> None:
    """A round that is over before anything is damaged."""


async def _go_on(self: Scrubber) -> None:
    """A round over more than can be read in the time."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("scrub_all", [_find_nothing, _go_on], ids=["after a round", "during a round"])
def test_known_damage_is_repaired_before_the_next_round(
    monkeypatch: pytest.MonkeyPatch, scrub_all: Callable[[Scrubber], Awaitable[None]]
) -> None:
    """A replica that can repair it may have been away in the last round."""
    monkeypatch.setattr("penstock.broker.healing.scrubber._SETTLE_S", 0.02)
    monkeypatch.setattr(Scrubber, "scrub_all", scrub_all)

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            damage(nodes, 1)
            await nodes[1].stages.healing.scrubber.scrub(replica(nodes[1]))
            await eventually(lambda: nodes[1].stages.storage.metrics.corruption_repaired == 1)

    run(main())


def test_damage_that_a_comparison_judges_is_repaired_by_its_verdict_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some in-sync replicas may have the same wrong bytes."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            scrubber, metrics = nodes[1].stages.healing.scrubber, nodes[1].stages.storage.metrics

            async def judge(broker: Broker, partition: Partition) -> None:
                if partition is replica(nodes[1]):
                    damage(nodes, 1)
                    await scrubber.scrub(partition)
                    await scrubber.repair_all()

            monkeypatch.setattr("penstock.broker.healing.scrubber.compare_replica", judge)
            await scrubber.scrub_all()
            assert (metrics.corruption_found, metrics.corruption_repaired) == (1, 0)
            await scrubber.repair_all()
            assert metrics.corruption_repaired == 1

    run(main())


def test_a_node_with_damaged_metadata_does_not_start() -> None:
    """Cut there, a voter could elect a node without committed records, and a lone broker loses topics."""

    async def main() -> None:
        async with cluster(1) as nodes:
            await make_topic(nodes, 1, min_isr=1)
            path = nodes[1].stages.cluster.node.log.log.segments.active.path(LOG)
            await nodes.kill(1)
            flip(nodes, 1, path, 100)
            with pytest.raises(PenstockError, match="damaged"):
                await nodes.start()

    run(main())


def test_health_counts_the_damage_that_is_there() -> None:
    """Counters missed damage from before a restart, and kept damage that had gone with its records."""

    def findings(node: Broker) -> list[str]:
        steps = node.serving.health.findings({})
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return [each.code for each in done.value if each.code == "damaged"]

    async def main() -> None:
        async with cluster(1) as nodes:
            await sealed_topic(nodes)
            assert findings(nodes[1]) == []
            damage(nodes, 1)
            await nodes[1].stages.healing.scrubber.scrub(replica(nodes[1]))
            assert findings(nodes[1]) == ["damaged"]
            await nodes.stop_in_turn(1)
            await nodes.start(1)
            assert findings(nodes[1]) == ["damaged"]
            log = replica(nodes[1]).log
            log.delete_records(log.segments.active.base_offset)
            assert findings(nodes[1]) == []

    run(main())
