"""A broker that is killed or stopped under load, again and again: nothing acknowledged is ever lost."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.penstock import penstock
from lab.server import Server
from penstock.testing import broker
from tests.interop.load import Load, read_all, wait_until

TOPIC = "load"
PARTITIONS = 3
PRODUCERS = 3


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[Server]:
    """`penstock up` on a disk and on a port that it keeps over restarts."""
    server = penstock(folder, {key.replace("_", "."): value for key, value in settings.items()})
    server.start()
    try:
        yield server
    finally:
        server.stop()


def make_topic(bootstrap: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(TOPIC, PARTITIONS, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([new])[TOPIC].result(timeout=60)


def end(server: Server, number: signal.Signals) -> int:
    """Send a signal and wait for the process; its exit code."""
    assert server.process is not None
    server.process.send_signal(number)
    return server.process.wait(60)


def more_arrive(load: Load, at_least: int) -> None:
    before = load.count
    wait_until(lambda: load.count >= before + at_least or bool(load.errors), f"{at_least} acknowledgements")


@pytest.mark.parametrize(("flush", "seed"), [("group", 1), ("group", 2), ("interval", 3)])
def test_kill_under_load(tmp_path: Path, flush: str, seed: int) -> None:
    """With `group` an acknowledged message is on the disk; otherwise the system's cache outlives us."""
    rng = random.Random(seed)
    # Short segments: the crash meets rolls, indexes and snapshots, too.
    with running(tmp_path, penstock_flush=flush) as server:
        make_topic(server.bootstrap, segment_ms="200", index_interval_bytes="512")
        load = Load(server.bootstrap, TOPIC, PARTITIONS, PRODUCERS)
        load.start()
        try:
            for _ in range(4):
                more_arrive(load, rng.randint(1, 3000))
                assert end(server, signal.SIGKILL) == -signal.SIGKILL
                server.start()
            more_arrive(load, 1)
        finally:
            load.stop()
        load.check(read_all(server.bootstrap, TOPIC, PARTITIONS))


def test_sigterm_under_load(tmp_path: Path) -> None:
    """It ends with 0, leaves the mark of a clean shutdown, and the next start has nothing to repair."""
    with running(tmp_path) as server:
        make_topic(server.bootstrap)
        load = Load(server.bootstrap, TOPIC, PARTITIONS, PRODUCERS)
        load.start()
        try:
            for _ in range(2):
                more_arrive(load, 1000)
                assert end(server, signal.SIGTERM) == 0
                assert (tmp_path / "data" / "clean-shutdown").exists()
                server.start()
            more_arrive(load, 1)
        finally:
            load.stop()
        assert end(server, signal.SIGTERM) == 0
    with broker(data=tmp_path / "data") as again:
        assert all(partition.log.recovery.clean for partition in again.broker.stages.storage.partitions)
        load.check(read_all(again.bootstrap, TOPIC, PARTITIONS))
