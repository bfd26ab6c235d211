"""The work of an active controller, measured on one cluster: a number for each cost."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from bench.scale.cluster import PER_TOPIC, ZONES, Cost, Size, Stage, broker_record, records_of
from penstock.broker.node.snapshot_files import encode_snapshot, records_in
from penstock.metadata.brokers import fence_broker, heartbeat
from penstock.metadata.checksum import Checksums, ImageChecksum, image_checksum, layout
from penstock.metadata.clocks import Clocks, ReportedClock
from penstock.metadata.election import MOST_ELECTIONS, balance_leaders
from penstock.metadata.healing import Settings, Situation, decide
from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.metadata.reassignment import alter_reassignments
from penstock.metadata.rebalance import plan_evacuation, rebalance_steps
from penstock.metadata.sessions import Sessions
from penstock.metadata.snapshot import image_of_snapshot, snapshot
from penstock.metadata.topics import Defaults, NewTopic, NewTopics, create_topic
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.raft.messages import LogPoint
from penstock.timekeeping.trust import Standing
from penstock.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

__all__ = ["Values", "memory", "run", "write_snapshot"]

Values: TypeAlias = dict[str, float]
Found: TypeAlias = Iterator[tuple[str, float]]
#: the default of `broker.heartbeat.interval.ms`
_INTERVAL_MS: Final = 500.0
_SESSION_MS: Final = 9000.0
_SKEW_MS: Final = 1000
#: brokers that a rolling restart takes in turn; the cost of the others is the same
_RESTARTED: Final = 5
#: partitions of which the cost of a reassignment is taken
_REASSIGNED: Final = 10_000
#: partitions that one request reassigns
_PER_REQUEST: Final = 1000
_CREATED: Final = 20
_LEADERS_MIN_PERCENT: Final = 0


def memory() -> dict[str, float]:
    """Resident memory of this process now, and its peak, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[key].split()[0]) / 1024 for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))}


def write_snapshot(size: Size, path: Path) -> Values:
    """Make the cluster, and take its snapshot as a node does."""
    image = image_of_snapshot(records_of(size), size.partitions)
    gc.collect()
    before = memory()["peak"]
    started = time.thread_time()
    records = snapshot(image)
    collected_s = time.thread_time() - started
    content = encode_snapshot(records, None, 0, LogPoint(1, size.partitions + 1))
    taken_s = time.thread_time() - started
    path.write_bytes(content)
    return {
        "snapshot, s": taken_s,
        "snapshot, s on the event loop": collected_s,
        "snapshot, MB": len(content) / 1e6,
        "snapshot, MiB of memory beside the image": max(0.0, memory()["peak"] - before),
    }


def run(size: Size, path: Path, report: Callable[[str, float], None]) -> None:
    """Measure all tasks on the cluster of a snapshot; `report` gets each value as soon as it is known."""
    image = _load(size, path, report)
    stage = Stage(image)
    stage.absences.observed(image, 0.0)
    tasks = (
        _checksum,
        _heartbeats,
        _creation,
        _failure,
        _restarts,
        _balance,
        _reassignment,
        _evacuation,
        _zone,
        _new_brokers,
    )
    for task in tasks:
        for name, value in task(stage, size):
            report(name, value)


def _load(size: Size, path: Path, report: Callable[[str, float], None]) -> ClusterImage:
    gc.collect()
    before = memory()["now"]
    started = time.thread_time()
    image = image_of_snapshot(records_in(path.read_bytes()), size.partitions)
    report("load, s", time.thread_time() - started)
    gc.collect()
    report("image, MiB", memory()["now"] - before)
    report("image, bytes per partition", (memory()["now"] - before) * 2**20 / size.partitions)
    return image


def _checksum(stage: Stage, size: Size) -> Found:
    started = time.thread_time()
    image_checksum(stage.image, 1)
    yield "checksum, s", time.thread_time() - started


def _heartbeats(stage: Stage, size: Size) -> Found:
    """Heartbeats that change nothing, from all brokers in turn, as `ControllerService` serves them."""
    image, now_ms = stage.image, 0.0
    sessions, clocks, checksums = Sessions(image, _SESSION_MS, 0.0), Clocks(0), Checksums()
    summed = ImageChecksum(1, 1, layout())
    rounds = max(2, 2000 // size.brokers)
    for turn in range(rounds + 1):
        if turn == 1:
            started = time.thread_time()
        for node in range(size.brokers):
            now_ms += _INTERVAL_MS / size.brokers
            request = stage.heartbeat_of(node)
            sessions.heard(node, request.broker_epoch, request.current_metadata_offset, now_ms)
            clock = ReportedClock(round(now_ms), Standing.BELIEVED)
            clocks.heard(
                image, node, clock, own=clock, now_ms=now_ms, session_ms=_SESSION_MS, limit_ms=_SKEW_MS
            )
            lowest = sessions.lowest_offset(image) if request.want_shut_down else -1
            records, _ = at_once(heartbeat(image, stage.policy, request, lowest))
            assert not records
            checksums.heard(node, summed)
            checksums.expected(node, 0, image.brokers)
    each_s = (time.thread_time() - started) / rounds / size.brokers
    yield "heartbeat, µs", each_s * 1e6
    yield "heartbeats of all brokers, cores", each_s * size.brokers * 1000 / _INTERVAL_MS
    started = time.thread_time()
    for _ in range(10):
        sessions.expired(image, now_ms)
        sessions.next_expiry(image)
    yield "turn of the controller's loop, µs", (time.thread_time() - started) / 10 * 1e6


def _creation(stage: Stage, size: Size) -> Found:
    together = NewTopics(stage.image)
    started = time.thread_time()
    for number in range(_CREATED):
        topic = NewTopic(f"new-{number}", PER_TOPIC, ZONES)
        topic_id = number.to_bytes(16, "big")
        assert at_once(create_topic(stage.image, topic, Defaults(1, 1), partial(TopicId, topic_id), together))
    yield "placement of a new partition, µs", (time.thread_time() - started) / _CREATED / PER_TOPIC * 1e6


def _failure(stage: Stage, size: Size) -> Found:
    """One broker fails, is healed elsewhere (the first plan alone), returns and leads again."""
    node = size.brokers // 2
    held = len(stage.image.partitions_on(node))
    cost = stage.decide(fence_broker(stage.image, stage.policy, node))
    yield from _costs("failure of a broker", cost)
    yield "failure of a broker, µs per replica", cost.seconds / held * 1e6
    settings = Settings(rebuild=True, share=True, delay_ms=0.0, partitions_max=100)
    started = time.thread_time()
    decision = decide(stage.image, settings, Situation({node: 1.0}, 0.0))
    assert decision.start or size.brokers == ZONES
    yield "decision of self-healing, s", time.thread_time() - started
    yield from _costs("return of a broker", _return(stage, node))


def _return(stage: Stage, node: int) -> Cost:
    """A fenced broker is up again, catches up, and leads what it prefers to."""
    cost, _ = stage.beat(node)
    cost += stage.catch_up(list(stage.image.partitions_on(node)))
    return cost + _lead_again(stage)


def _lead_again(stage: Stage) -> Cost:
    total = Cost()
    while True:
        started = time.thread_time()
        records = balance_leaders(stage.image, stage.policy, _LEADERS_MIN_PERCENT)
        decided_s = time.thread_time() - started
        total += Cost(decided_s, slice_s=decided_s)
        if records:
            total += stage.change(records)
        if len(records) < MOST_ELECTIONS:
            return total


def _restarts(stage: Stage, size: Size) -> Found:
    """Controlled stops and starts, one broker after the other."""
    total, count = Cost(), min(_RESTARTED, size.brokers)
    for node in range(count):
        stopped, answer = stage.beat(node, stops=True)
        total += stopped
        while not answer.should_shut_down:
            stopped, answer = stage.beat(node, stops=True)
            total += stopped
        total += stage.register(node) + _return(stage, node)
    mean = total._replace(seconds=total.seconds / count, size=total.size // count)
    yield from _costs("restart of a broker", mean)
    yield "rolling restart, s", total.seconds / count * size.brokers
    yield "rolling restart, MB of log", total.size / count * size.brokers / 1e6


def _zone(stage: Stage, size: Size) -> Found:
    """All brokers of a zone fail: each is fenced in turn."""
    nodes = range(1, size.brokers, ZONES)
    total = Cost()
    for node in nodes:
        total += stage.decide(fence_broker(stage.image, stage.policy, node))
    assert not stage.image.leaderless
    yield from _costs("failure of a zone", total)
    yield "failure of a zone, ms per broker", total.seconds / len(nodes) * 1000


def _balance(stage: Stage, size: Size) -> Found:
    started = time.thread_time()
    assert not balance_leaders(stage.image, stage.policy, _LEADERS_MIN_PERCENT)
    yield "check of preferred leaders, ms", (time.thread_time() - started) * 1000


def _reassignment(stage: Stage, size: Size) -> Found:
    """Partitions get another replica in the zone of their last one, and then have it."""
    total, moved = Cost(), list[PartitionImage]()
    for request, partitions in _requests(stage.image, size):
        started = time.thread_time()
        records, _ = alter_reassignments(stage.image, stage.policy, request)
        decided_s = time.thread_time() - started
        total += Cost(decided_s, slice_s=decided_s) + stage.change(records)
        moved += partitions
        if len(moved) >= _REASSIGNED:
            break
    yield "reassignment, µs per partition to begin", total.seconds / len(moved) * 1e6
    yield "reassignment, bytes of log per partition to begin", total.size / len(moved)
    assert len(stage.image.reassigning) == len(moved)
    ended = stage.catch_up(moved)
    assert not stage.image.reassigning
    yield "reassignment, µs per partition to end", ended.seconds / len(moved) * 1e6
    yield "reassignment, bytes of log per partition to end", ended.size / len(moved)
    total += ended
    yield "reassignment of all partitions, s", total.seconds / len(moved) * size.partitions
    yield "reassignment of all partitions, MB of log", total.size / len(moved) * size.partitions / 1e6


def _requests(
    image: ClusterImage, size: Size
) -> Iterator[tuple[AlterPartitionReassignmentsRequest, list[PartitionImage]]]:
    topics, partitions = list[ReassignableTopic](), list[PartitionImage]()
    for topic in list(image.topics.values()):
        wanted = []
        for index, partition in topic.partitions.items():
            *kept, last = partition.replicas
            target = [*kept, (last + ZONES) % size.brokers]
            wanted.append(ReassignablePartition(partition_index=index, replicas=target))
            partitions.append(partition)
        topics.append(ReassignableTopic(name=topic.name, partitions=wanted))
        if len(partitions) >= _PER_REQUEST:
            yield AlterPartitionReassignmentsRequest(topics=topics), partitions
            topics, partitions = [], []
    if topics:
        yield AlterPartitionReassignmentsRequest(topics=topics), partitions


def _evacuation(stage: Stage, size: Size) -> Found:
    started = time.thread_time()
    assert plan_evacuation(stage.image, list(stage.image.partitions_on(0)), {0})
    yield "plan that empties a broker, s", time.thread_time() - started


def _new_brokers(stage: Stage, size: Size) -> Found:
    """Three brokers come, after those of the failed zone are up again."""
    for node in range(1, size.brokers, ZONES):
        stage.beat(node)
    stage.change(broker_record(node, 1) for node in range(size.brokers, size.brokers + ZONES))
    longest_s, started = 0.0, time.thread_time()
    steps = rebalance_steps(stage.image, {})
    while True:
        slice_began = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            moves = end.value
            break
        longest_s = max(longest_s, time.thread_time() - slice_began)
    yield "plan for three new brokers, s", time.thread_time() - started
    yield "plan for three new brokers, longest slice, ms", longest_s * 1000
    yield "plan for three new brokers, moves", len(moves)


def _costs(name: str, cost: Cost) -> Found:
    yield f"{name}, s", cost.seconds
    yield f"{name}, MB of log", cost.size / 1e6
    yield f"{name}, longest slice, ms", cost.slice_s * 1000
