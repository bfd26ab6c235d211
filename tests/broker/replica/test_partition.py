"""A partition by its public surface: appends, roles, what readers see, and how other modules use it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.replica import partition as partition_module
from penstock.broker.replica.partition import Partition
from penstock.model.errors import (
    FencedLeaderEpoch,
    InvalidTopic,
    NotLeaderOrFollower,
    StorageError,
    UnknownLeaderEpoch,
)
from penstock.records.codecs import Codec
from penstock.storage.config import LogConfig
from penstock.storage.producers import AppendOrigin
from tests.broker.memory_partitions import batch, led, partition_of

BROKER = Path(partition_module.__file__).parents[1]
#: fields that belong to deferred appends, and to tiered storage, which assign them
ASSIGNED_BY = {("deferred_appends", "pending"), ("copies", "archived"), ("local_retention", "archived")}
#: the fields that modules outside `broker.replica` may use
PUBLIC = {
    "directory",
    "health",
    "hosted",
    "index",
    "leader_epoch",
    "leading",
    "log",
    "readers",
    "stats",
    "topic",
    "topic_id",
}
#: The hot paths of produce, fetch and coordinators, which call no function for this; deletions, which wait
#: for followers; tiered storage; modules that rewrite segments; the simulator's view of the disk.
USED_BY = {
    "acknowledgements": {"produce"},
    "archived": {"copies", "local_retention", "offsets"},
    "leadership": {"offsets", "pending", "produce", "replica_fetch", "shard_host", "shard_log"},
    "rewriting": {"compacted_repair", "hole_filling", "maintenance", "repair", "segment_upgrade"},
    "sync": {"observation", "pending", "produce", "shard_host"},
}


class Reader:
    """A waiting request."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def more(self, size: int) -> None:
        self.sizes.append(size)


class FollowerSession:
    """A fetch session of a follower."""

    def __init__(self) -> None:
        self.grown = self.moves = 0

    def grew(self, size: int) -> None:
        self.grown += 1

    def moved(self) -> None:
        self.moves += 1


def test_only_a_leader_appends() -> None:
    partition = partition_of()
    with pytest.raises(NotLeaderOrFollower):
        partition.append(batch())
    partition.lead(3, None)
    assert partition.append(batch(2)).base_offset == 0
    partition.follow(4)
    with pytest.raises(NotLeaderOrFollower):
        partition.append(batch())
    assert partition.log.end_offset == 2


def test_clients_do_not_append_to_internal_topics() -> None:
    partition = led("__consumer_offsets")
    with pytest.raises(InvalidTopic):
        partition.append(batch())
    partition.append(batch(), AppendOrigin.COORDINATOR)
    assert partition.log.end_offset == 1


def test_an_append_to_a_single_replica_is_readable_and_wakes_readers() -> None:
    partition, reader, committed = led(), Reader(), Reader()
    partition.readers.join(reader)
    partition.readers.join(committed, committed=True)
    appended = batch(3)
    partition.append(appended)
    assert (partition.readable_end(False), partition.readable_end(True)) == (3, 3)
    assert reader.sizes == committed.sizes == [len(appended)]


def test_a_follower_shows_records_below_the_high_watermark_of_its_leader() -> None:
    partition, reader = partition_of(), Reader()
    partition.follow(3)
    partition.readers.join(reader)
    size = partition.append_replicated(batch(2), 3)
    assert (partition.readable_end(False), reader.sizes) == (0, [])
    partition.follow_watermarks(5, 0, size)
    assert (partition.readable_end(False), reader.sizes) == (2, [size])
    assert partition.lag == 3
    partition.follow_watermarks(5, 0, 0)
    assert reader.sizes == [size]


def test_a_leader_has_no_lag() -> None:
    partition = partition_of()
    partition.follow(3)
    partition.follow_watermarks(5, 0, 0)
    assert partition.lag == 5
    partition.lead(4, None)
    assert partition.lag == 0


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, None), (3, None), (2, FencedLeaderEpoch), (4, UnknownLeaderEpoch)]
)
def test_leader_epochs_of_requests_are_compared(epoch: int, error: type[Exception] | None) -> None:
    partition = led(leader_epoch=3)
    if error is None:
        partition.check_leader_epoch(epoch)
        return
    with pytest.raises(error):
        partition.check_leader_epoch(epoch)


def test_a_follower_serves_requests_that_do_not_need_the_leader() -> None:
    partition = partition_of()
    partition.follow(3)
    partition.check_leader_epoch(3, only_leader=False)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader_epoch(3)


def test_a_new_role_wakes_requests_and_followers() -> None:
    partition, reader, committed, follower = led(), Reader(), Reader(), FollowerSession()
    partition.readers.join(reader)
    partition.readers.join(committed, committed=True)
    partition.followers[follower] = None
    partition.step_down()
    assert (len(reader.sizes), len(committed.sizes), follower.grown) == (1, 1, 1)
    assert (partition.leading, partition.leader_epoch) == (False, 3)


def test_followers_learn_of_a_new_log_start() -> None:
    partition, follower = led(), FollowerSession()
    partition.append(batch(3))
    partition.followers[follower] = None
    partition.advance_log_start(2)
    partition.advance_log_start(1)
    assert (partition.log.log_start_offset, follower.moves) == (2, 1)


def test_a_partition_is_online_while_it_is_hosted_and_its_directory_works() -> None:
    partitions = hosted, retired, broken = led(), led(), led()
    retired.retire()
    broken.health.sync_failed(OSError(5, "input/output error"), "a disk failed")
    assert [partition.is_online for partition in partitions] == [True, False, False]
    assert (hosted.leading, retired.leading) == (True, False)
    with pytest.raises(StorageError):
        broken.health.check()


def test_changed_configs_apply() -> None:
    partition = led()
    partition.reconfigure(LogConfig(compression_type="zstd", compression_zstd_level=7, flush_ms=1500))
    assert (partition.recompression, partition.sync.flush_s) == ((Codec.ZSTD, 7), 1.5)


def test_an_append_that_reaches_flush_messages_waits_for_its_sync() -> None:
    partition = led()
    partition.reconfigure(LogConfig(flush_messages=3))
    partition.append(batch(2))
    assert not partition.sync.acks_wait
    partition.append(batch(1))
    assert partition.sync.acks_wait


def _named(path: Path) -> Iterator[tuple[str, ast.expr_context]]:
    """The fields of partitions that a module names, as far as a variable is called one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in Partition.__slots__:
            owner = ast.unparse(node.value).split(".")[-1].lstrip("_")
            if owner in ("partition", "replica"):
                yield node.attr, node.ctx


def test_only_the_partition_assigns_its_fields() -> None:
    assigned = {
        (path.stem, field)
        for path in sorted(BROKER.rglob("*.py"))
        for field, context in _named(path)
        if not isinstance(context, ast.Load)
    }
    assert assigned == ASSIGNED_BY


def test_other_packages_use_the_public_surface() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for path in sorted(BROKER.parent.rglob("*.py")):
        if path.parent != BROKER / "replica":
            for field, _ in _named(path):
                used[field].add(path.stem)
    assert {field: modules for field, modules in used.items() if field not in PUBLIC} == USED_BY
