"""`penstock link failback`: the old source becomes a mirror of the cluster that took over from it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.broker.replica.partition import Partition
from penstock.net.link_client import LinkError
from penstock.testing import broker, cluster
from penstock.testing.brokers import BrokerThread
from tests.broker.links.clusters import (
    DEFAULTS,
    commit,
    committed,
    create,
    ends_at,
    lines,
    link,
    log_of,
    records,
    reports,
    send,
    values,
)
from tests.broker.links.commands import end_topics
from tests.broker.metadata_damage import flip
from tests.cli.running import run_here
from tests.waiting import eventually

T = TypeVar("T")
ON_DISK = {**DEFAULTS, "penstock.memory": "false"}


def fail_over(new: str, name: str = "west") -> None:
    with lines(new) as line:
        end_topics(line, name, None, complete=False, wait_s=60)


def pause(bootstrap: str, topic: str) -> None:
    """Have the source run on without its link."""
    link(bootstrap, "127.0.0.1:1", paused="true")
    eventually(lambda: (log := log_of(bootstrap, topic)) is not None and log.reason == "the link is paused")


@contextmanager
def diverged(tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """Two clusters: 30 records in common, then 12 that only the old source has, and 20 of the new one."""
    data = tmp_path / "old"
    with broker(data=data, config=ON_DISK) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        for n in range(3):
            send(old, "orders", range(10 * n, 10 * n + 10))
        link(new, old, groups="*")
        ends_at(new, "orders", 30)
        pause(new, "orders")
        for n in range(4):
            send(old, "orders", range(100 + 3 * n, 103 + 3 * n))
        fail_over(new)
        send(new, "orders", range(30, 50))
        yield old, new, data


def test_an_old_source_returns_and_keeps_its_divergent_records_in_the_quarantine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with diverged(tmp_path) as (old, new, data):
        commit(old, "readers", "orders", 41)
        link(old, new, "east", groups="*")
        eventually(lambda: "topic orders exists, and is not mirrored" in reports(old))
        at = ("--bootstrap", old)
        assert run_here("link", "failback", "east", "orders", "--dry-run", "--json", *at) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row == {"topic": "orders", "partition": 0, "common_offset": 30, "set_aside_records": 12}
        send(old, "orders", range(112, 113))

        assert run_here("link", "failback", "east", "orders", *at) == 0
        assert "13 records were set aside" in capsys.readouterr().out
        ends_at(old, "orders", 50)
        assert values(old, "orders") == list(range(50))
        assert records(old, "orders") == records(new, "orders")
        send(new, "orders", range(50, 60))
        ends_at(old, "orders", 60)
        # A group that had read behind the common point goes on at it: it has not seen the source's records.
        assert committed(old, "readers", "orders") == 30
        commit(new, "readers", "orders", 55)
        eventually(lambda: committed(old, "readers", "orders") == 55)

        assert run_here("log", "quarantine", "list", "--data", str(data), "--json") == 0
        (entry,) = json.loads(capsys.readouterr().out)
        assert (entry["topic"], entry["partitions"]) == ("orders", [0])
        assert "13 records: offsets 30 to 42" in entry["reason"]
        (segment,) = (Path(entry["path"]) / "data" / "partition-0").iterdir()
        assert segment.name == f"{30:020d}.log"
        assert run_here("log", "dump", str(segment), "--records") == 0
        kept = re.findall(r"value=b'(\d+)'", capsys.readouterr().out)
        assert kept == [str(n) for n in range(100, 113)]
        # The command has nothing left to do, and the new source can be promoted again.
        assert run_here("link", "failback", "east", "orders", *at) == 0
        assert run_here("link", "promote", "east", "--all", *at) == 0
        send(old, "orders", range(60, 70))
        assert values(old, "orders") == list(range(70))


def test_a_damaged_tail_goes_to_the_quarantine_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A length of a batch that only the old source has is wrong: what is behind it cannot be read."""
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(30))
        link(new, old)
        ends_at(new, "orders", 30)
        pause(new, "orders")
        for n in range(4):
            send(old, "orders", range(100 + 3 * n, 103 + 3 * n))
        tail = on_loop(source, lambda own: damaged_at(own, 36))
        fail_over(new)
        send(new, "orders", range(30, 50))
        link(old, new, "east")
        assert run_here("link", "failback", "east", "orders", "--json", "--bootstrap", old) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["common_offset"], row["set_aside_records"]) == (30, 12)
        ends_at(old, "orders", 50)
        assert values(old, "orders") == list(range(50))

        def kept(partition: Partition) -> tuple[str, bytes]:
            quarantine, files = partition.directory.quarantine, source.broker.stages.world.files
            (entry,) = quarantine.entries()
            folder = f"{quarantine.entry_path(entry.name)}/data/partition-0"
            (name,) = files.listdir(folder)
            file = files.open(f"{folder}/{name}")
            return entry.reason, bytes(file.pread(file.size(), 0))

        reason, content = on_loop(source, kept)
        assert "6 records, and damaged bytes from 36 on: offsets 30 to 41" in reason
        assert content == tail


def damaged_at(partition: Partition, offset: int) -> bytes:
    """Change the length of the batch at an offset. Returns the bytes from offset 30 on."""
    own = partition.log
    start, found = (own.read(each, 1, upper=own.end_offset) for each in (30, offset))
    assert start is not None and found is not None
    path = own.segments.active.path(".log")
    flip(own._store.files, path, found.position + 8)  # type: ignore[arg-type]
    return start.file.pread(start.file.size() - start.position, start.position)


def on_loop(running: BrokerThread, work: Callable[[Partition], T]) -> T:
    """The result of work in the event loop of a broker."""

    async def run() -> T:
        partition = running.broker.stages.storage.partitions.find("orders", 0)
        assert isinstance(partition, Partition)
        return work(partition)

    return asyncio.run_coroutine_threadsafe(run(), running.broker.stages.listening.server.loop).result(30)


def test_a_mirror_that_is_not_promoted_is_no_source_for_its_own_source(tmp_path: Path) -> None:
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(5))
        link(new, old)
        ends_at(new, "orders", 5)
        link(old, new, "east")
        assert run_here("link", "failback", "east", "orders", "--wait", "1", "--bootstrap", old) != 0
        # The topic is as it was before.
        send(old, "orders", range(5, 10))
        ends_at(new, "orders", 10)


def test_all_replicas_cut_their_logs_also_one_that_was_away() -> None:
    config = {"group.initial.rebalance.delay.ms": "0"}
    with cluster(brokers=3, config=config) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders", 2, 3, min_insync_replicas="1")
        for partition in (0, 1):
            send(old, "orders", range(20), partition)
        link(new, old)
        for partition in (0, 1):
            ends_at(new, "orders", 20, partition)
        pause(new, "orders")
        send(old, "orders", range(100, 115))
        source.wait_for_isr("orders")
        leader = source.wait_for_leader("orders")
        away = next(node for node in range(1, 4) if node != leader)
        source.kill(away)
        source.advance(15)
        fail_over(new)
        send(new, "orders", range(20, 50))
        link(old, new, "east")
        assert run_here("link", "failback", "east", "orders", "--bootstrap", old) == 0
        ends_at(old, "orders", 50)
        assert values(old, "orders") == list(range(50))
        # Its old log would count as the newer one, if the topic was an ordinary one when it comes back.
        with lines(old) as line, pytest.raises(LinkError, match=f"replica {away} of orders-0 is not in sync"):
            end_topics(line, "east", None, complete=False, wait_s=0.5)
        source.start(away)
        for partition in (0, 1):
            source.wait_for_isr("orders", partition)
        # Without the former leader, and then without the third broker, the one that was away has all of it.
        third = next(node for node in range(1, 4) if node not in (leader, away))
        for gone, back in ((leader, None), (third, leader)):
            source.kill(gone)
            source.advance(15)
            if back is not None:
                source.start(back)
            source.wait_for_leader("orders", other_than=gone)
            assert values(old, "orders") == list(range(50))
