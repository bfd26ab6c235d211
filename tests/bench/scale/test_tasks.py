"""All tasks of `make scale` on a small cluster, and costs that must not grow with the cluster."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest

from bench.scale.cluster import ZONES, Cost, Size, Stage, broker_record, records_of
from bench.scale.report import growth, table
from bench.scale.tasks import Values, run, write_snapshot
from penstock.metadata.balance import next_step
from penstock.metadata.brokers import fence_broker
from penstock.metadata.election import balance_leaders
from penstock.metadata.image import NO_LEADER
from penstock.metadata.rebalance import rebalance_steps
from penstock.metadata.snapshot import image_of_snapshot
from penstock.wire.metadata_records import (
    PartitionChangeRecord,
    decode_metadata_record,
    encode_metadata_record,
)

_SIZE = Size(partitions=120, brokers=12)


def stage(size: Size = _SIZE) -> Stage:
    return Stage(image_of_snapshot(records_of(size), size.partitions))


def test_all_tasks_have_a_cost(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    values: Values = write_snapshot(_SIZE, path)
    run(_SIZE, path, values.__setitem__)
    assert values["snapshot, MB"] == path.stat().st_size / 1e6
    for name in ("failure of a broker, s", "failure of a zone, s", "rolling restart, s", "heartbeat, µs"):
        assert values[name] > 0
    assert values["plan for three new brokers, moves"] > 0


def test_partitions_have_a_replica_in_each_zone() -> None:
    image = stage().image
    assert len(list(image.partitions)) == _SIZE.partitions
    for partition in image.partitions:
        assert {node % ZONES for node in partition.replicas} == set(range(ZONES))


def test_a_failed_broker_leads_nothing_and_no_partition_is_without_a_leader() -> None:
    cluster = stage()
    led = sum(partition.leader == 5 for partition in cluster.image.partitions)
    held = len(cluster.image.partitions_on(5))
    cost = cluster.decide(fence_broker(cluster.image, cluster.policy, 5))
    assert led > 0
    assert cost.records == held + 1
    assert all(partition.leader not in (5, NO_LEADER) for partition in cluster.image.partitions)


@pytest.mark.parametrize(("partitions", "brokers"), [(3_000, 30), (6_000, 60)])
def test_records_of_a_failure_depend_on_the_replicas_of_the_broker(partitions: int, brokers: int) -> None:
    cluster = stage(Size(partitions, brokers))
    held = len(cluster.image.partitions_on(7))
    cost = cluster.decide(fence_broker(cluster.image, cluster.policy, 7))
    assert cost.records == held + 1
    assert cost.size < 80 * held


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls of functions that some work makes: the same on every machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize(
    "work",
    [
        lambda cluster: balance_leaders(cluster.image, cluster.policy, 0),
        lambda cluster: next_step(cluster.image, {}, tolerance=0.1, replicas=True),
        lambda cluster: list(fence_broker(cluster.image, cluster.policy, 5)),
    ],
)
def test_work_for_one_broker_does_not_grow_with_the_cluster(work: Callable[[Stage], object]) -> None:
    """The brokers have as many replicas each in both clusters, and a reassignment is under way."""
    counts = []
    for size in (Size(300, 6), Size(3000, 60)):
        cluster = stage(size)
        cluster.decide(fence_broker(cluster.image, cluster.policy, 2))
        *_, last = cluster.image.partitions
        change = PartitionChangeRecord(
            topic_id=last.topic_id, partition_id=last.index, adding_replicas=[last.replicas[0]]
        )
        cluster.change([change])
        counts.append(calls_of(partial(work, cluster)))
    assert counts[1] < 2 * counts[0]


def test_slices_of_a_plan_are_short_however_many_replicas_a_broker_has() -> None:
    longest = []
    for size in (Size(600, 6), Size(6000, 6)):
        cluster = stage(size)
        cluster.change(broker_record(node, 1) for node in range(6, 9))
        steps = rebalance_steps(cluster.image, {})
        longest.append(max(map(calls_of, repeat(partial(next, steps, None), 2000))))
    assert longest[1] < 2 * longest[0]


def test_a_loaded_image_has_ids_once() -> None:
    values = map(encode_metadata_record, records_of(_SIZE))
    image = image_of_snapshot(map(decode_metadata_record, values), 0)
    partitions = list(image.partitions)
    assert len({id(p.topic_id) for p in partitions}) == _SIZE.topics
    assert len({id(each) for p in partitions for each in p.directories}) == _SIZE.brokers


def test_costs_add_up_and_keep_the_longest_slice() -> None:
    assert Cost(1.0, 10, 2, 0.5) + Cost(2.0, 20, 3, 0.25) == Cost(3.0, 30, 5, 0.5)


def test_growth_is_the_power_between_the_last_two_sizes() -> None:
    results = {10: {"flat": 3.0, "linear": 1.0}, 1000: {"flat": 3.0, "linear": 100.0}}
    assert growth(results, "flat") == 0.0
    assert growth(results, "linear") == pytest.approx(1.0)
    assert growth({10: {"flat": 3.0}}, "flat") is None


def test_the_table_has_a_column_for_each_size() -> None:
    shown = table({10_000: {"load, s": 1.0}, 50_000: {"load, s": 5.0}})
    assert "| | 10,000 partitions, 9 brokers | 50,000 partitions, 51 brokers | power |" in shown
    assert "| load, s | 1 | 5 | 1.00 |" in shown
