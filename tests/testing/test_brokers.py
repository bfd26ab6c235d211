"""`penstock.testing.broker`: quick, independent of others, restartable, and gone without a trace."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.model.errors import InvalidConfig
from penstock.storage.directory import DirectoryRefused
from penstock.testing import BrokerThread, broker

QUIET = {"log_level": 0}


def produce(running: BrokerThread, value: bytes, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, **QUIET})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def read(running: BrokerThread, count: int, topic: str = "t") -> list[bytes]:
    settings = {"group.id": "unused", "enable.auto.commit": False, **QUIET}
    consumer = Consumer({"bootstrap.servers": running.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, 60)]
    consumer.close()
    return values


def test_ready_after_less_than_100_ms_of_work(tmp_path: Path) -> None:
    """Of the processor, which others use, too; once imported, and it takes a tenth of that."""

    def seconds(data: Path | None) -> float:
        started = time.process_time()
        with broker(data=data) as running:
            host, port = running.bootstrap.split(":")
            socket.create_connection((host, int(port))).close()
            return time.process_time() - started

    assert any(seconds(None) < 0.1 for _ in range(20))
    assert any(seconds(tmp_path) < 0.1 for _ in range(20))


def test_brokers_in_parallel_know_nothing_of_each_other() -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(broker()) for _ in range(5)]
        assert len({running.bootstrap for running in brokers}) == 5
        assert len({running.broker.stages.cluster.node.cluster_id for running in brokers}) == 5
        for number, running in enumerate(brokers):
            produce(running, b"%d" % number)
        assert [read(running, 1) for running in brokers] == [[b"%d" % n] for n in range(5)]


def test_configs_are_the_brokers() -> None:
    with broker(config={"num.partitions": "3", "node.id": "7"}) as running:
        produce(running, b"v")
        metadata = Producer({"bootstrap.servers": running.bootstrap}).list_topics(timeout=60)
        assert len(metadata.topics["t"].partitions) == 3
        assert list(metadata.brokers) == [7]


def test_data_stays_where_it_was_put(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running:
        produce(running, b"kept")
    with broker(data=tmp_path) as running:
        assert read(running, 1) == [b"kept"]
        assert all(partition.log.recovery.clean for partition in running.broker.stages.storage.partitions)


@pytest.mark.parametrize("on_disk", [False, True])
def test_restart_keeps_address_and_data(tmp_path: Path, on_disk: bool) -> None:
    with broker(data=tmp_path if on_disk else None) as running:
        before = running.bootstrap
        produce(running, b"one")
        running.restart()
        produce(running, b"two")
        running.restart()
        assert running.bootstrap == before
        assert read(running, 2) == [b"one", b"two"]


def test_stopping_by_hand_is_fine() -> None:
    with broker() as running:
        running.stop()
        running.stop()
        running.start()
        produce(running, b"v")
        assert read(running, 1) == [b"v"]


# -- errors


def open_files() -> set[tuple[str, str]]:
    """Every open file and socket of this process, by descriptor."""
    gc.collect()
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
        except FileNotFoundError:
            continue  # the one that listed them
    return found


def a_taken_port(folder: Path, stack: ExitStack) -> BrokerThread:
    taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return stack.enter_context(broker(data=folder, port=taken.getsockname()[1]))


def a_directory_in_use(folder: Path, stack: ExitStack) -> BrokerThread:
    stack.enter_context(broker(data=folder))
    return stack.enter_context(broker(data=folder))


def a_directory_that_cannot_be(folder: Path, stack: ExitStack) -> BrokerThread:
    (folder / "file").touch()
    return stack.enter_context(broker(data=folder / "file" / "data"))


def another_nodes_directory(folder: Path, stack: ExitStack) -> BrokerThread:
    with broker(data=folder, config={"node.id": "2"}):
        pass
    return stack.enter_context(broker(data=folder))


def a_bad_config(folder: Path, stack: ExitStack) -> BrokerThread:
    return stack.enter_context(broker(config={"num.partitions": "many"}))


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (a_taken_port, OSError),
        (a_directory_in_use, DirectoryRefused),
        (a_directory_that_cannot_be, DirectoryRefused),
        (another_nodes_directory, DirectoryRefused),
        (a_bad_config, InvalidConfig),
    ],
)
def test_errors_at_start_are_raised_and_leave_nothing_behind(
    tmp_path: Path,
    attempt: Callable[[Path, ExitStack], BrokerThread],
    error: type[Exception],
) -> None:
    files, threads = open_files(), set(threading.enumerate())
    with ExitStack() as stack, pytest.raises(error):
        attempt(tmp_path, stack)
    # Those of an earlier test may have ended meanwhile.
    assert (open_files() - files, set(threading.enumerate()) - threads) == (set(), set())


def test_a_failed_start_leaves_a_clean_directory_clean(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running:
        produce(running, b"kept")
    with ExitStack() as stack, pytest.raises(OSError, match="in use"):
        a_taken_port(tmp_path, stack)
    with broker(data=tmp_path) as running:
        assert all(partition.log.recovery.clean for partition in running.broker.stages.storage.partitions)
        assert read(running, 1) == [b"kept"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_nothing_is_left_of_a_broker(tmp_path: Path, on_disk: bool) -> None:
    def use() -> None:
        with broker(data=tmp_path if on_disk else None, config={"penstock.flush": "group"}) as running:
            produce(running, b"v")
            read(running, 1)
            # A client that stays connected must not hold anything either.
            host, port = running.bootstrap.split(":")
            client = socket.create_connection((host, int(port)))
            running.restart()
        client.close()

    use()  # the first use may load libraries
    files, threads = open_files(), set(threading.enumerate())
    use()
    # Those of an earlier test may have ended meanwhile.
    assert (open_files() - files, set(threading.enumerate()) - threads) == (set(), set())
