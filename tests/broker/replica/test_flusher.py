"""When acknowledged data is on the disk: `penstock.flush` group, interval and os."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.broker.base.system_ports import SystemRng
from penstock.broker.base.workers import SystemWorkers
from penstock.broker.replica.flusher import Flusher, FlushPolicy
from penstock.model.errors import ErrorCode, StorageError
from penstock.storage.directory import DataDirectory
from penstock.storage.flush import FlushPlan
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.produce import PRODUCE, PartitionProduceResponse, ProduceResponse
from tests.broker.configs import TOPIC, set_config
from tests.broker.disks import BrokerOnDisk, Disk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    LATEST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_topic,
    fetch,
    fetch_request,
    list_offset,
    new_producer_id,
    only_partition,
    produce_request,
    until,
    values_in,
    wanted,
)

#: what brokers write down now and then is synced, too, and not counted here
NO_CHECKPOINTS = {
    "replica_high_watermark_checkpoint_interval_ms": "3600000",
    "log_flush_offset_checkpoint_interval_ms": "3600000",
}


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def group(disk: Disk) -> Iterator[BrokerOnDisk]:
    with on_disk(disk, penstock_flush="group") as running:
        yield running
        disk.release_syncs()


@pytest.fixture
def client(group: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(group.bootstrap) as connected:
        yield connected


@pytest.fixture
def other(client: RawClient) -> Iterator[RawClient]:
    with client.another() as connected:
        yield connected


def send(client: RawClient, topic: Topic, batch: bytes, acks: int = -1) -> None:
    client.send(PRODUCE, 13, produce_request(topic, batch, acks=acks, version=13), answered=bool(acks))


def append_synced(client: RawClient, topic: Topic, disk: Disk) -> None:
    """Append something, and return when there was a sync after it."""
    synced = disk.syncs
    append(client, topic, b"x")
    until(lambda: disk.syncs > synced)


def answer(client: RawClient) -> PartitionProduceResponse:
    response = client.receive()
    assert isinstance(response, ProduceResponse)
    return only_partition(response)


def is_silent(client: RawClient, other: RawClient) -> bool:
    """Whether no answer has come, although the broker had time to answer another."""
    for _ in range(3):
        other.call(METADATA, 12, MetadataRequest(topics=[]))
    return not select.select([client.socket], [], [], 0)[0]


@pytest.mark.parametrize("acks", [1, -1])
def test_group_acks_wait_for_the_disk_and_so_do_readers(
    client: RawClient, other: RawClient, topic: Topic, disk: Disk, acks: int
) -> None:
    disk.hold_syncs()
    send(client, topic, batch_of([b"precious"]), acks)

    assert is_silent(client, other)
    seen = fetch(other, topic, 0)
    assert (seen.high_watermark, values_in(seen)) == (0, [])
    assert list_offset(other, topic, LATEST).offset == 0

    disk.release_syncs()
    assert (answer(client).error_code, fetch(other, topic, 0).high_watermark) == (ErrorCode.NONE, 1)
    assert values_in(fetch(other, topic, 0)) == [b"precious"]


def test_group_without_acks_readers_wait_all_the_same(
    client: RawClient, other: RawClient, topic: Topic, disk: Disk
) -> None:
    disk.hold_syncs()
    send(client, topic, batch_of([b"silent"]), acks=0)
    assert values_in(fetch(client, topic, 0)) == []

    disk.release_syncs()
    answered = fetch(other, topic, 0, max_wait_ms=30_000)
    assert values_in(answered) == [b"silent"]


def test_group_many_requests_share_a_sync(
    client: RawClient, other: RawClient, topic: Topic, disk: Disk
) -> None:
    append(client, topic, b"first")
    before = disk.syncs
    disk.hold_syncs()
    for i in range(50):
        send(client, topic, batch_of([b"%d" % i]))
    assert is_silent(client, other)

    disk.release_syncs()

    assert [answer(client).base_offset for _ in range(50)] == list(range(1, 51))
    assert disk.syncs - before <= 4


def test_group_waiting_readers_are_woken_by_the_sync(
    client: RawClient, other: RawClient, topic: Topic, disk: Disk
) -> None:
    disk.hold_syncs()
    client.send(FETCH, 18, fetch_request([(topic, [wanted(0)])], version=18, max_wait_ms=30_000))
    send(other, topic, batch_of([b"x"]))
    with other.another() as third:
        assert is_silent(client, third)

    disk.release_syncs()

    response = client.receive()
    assert isinstance(response, FetchResponse)
    assert values_in(response.responses[0].partitions[0]) == [b"x"]
    assert answer(other).error_code == ErrorCode.NONE


def test_group_a_duplicate_waits_for_the_flush_of_the_original(
    client: RawClient, other: RawClient, topic: Topic, disk: Disk
) -> None:
    batch = batch_of([b"x"], producer_id=new_producer_id(client), producer_epoch=0, base_sequence=0)
    disk.hold_syncs()
    send(client, topic, batch)
    send(client, topic, batch)
    assert is_silent(client, other)

    disk.release_syncs()

    assert [answer(client).base_offset for _ in range(2)] == [0, 0]


def test_group_min_bytes_are_counted_in_bytes(client: RawClient, other: RawClient, topic: Topic) -> None:
    """Also where readers learn of new records from a sync and not from an append."""
    request = fetch_request([(topic, [wanted(0)])], version=18, max_wait_ms=30_000, min_bytes=2500)
    client.send(FETCH, 18, request)
    append(other, topic, *[b"%d" % i for i in range(20)])
    append(other, topic, b"x" * 1000)
    with other.another() as third:
        assert is_silent(client, third)
    append(other, topic, b"y" * 2000)

    response = client.receive()
    assert isinstance(response, FetchResponse)
    assert len(values_in(response.responses[0].partitions[0])) == 22


@pytest.mark.parametrize("policy", ["group", "interval"])
def test_deleting_a_topic_during_its_sync_causes_no_error(policy: str) -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush=policy, penstock_flush_interval_ms="1") as running,
        RawClient(running.bootstrap) as client,
        RawClient(running.bootstrap) as other,
    ):
        doomed, lasting = create_topic(client), create_topic(client)
        disk.hold_next_sync()
        send(client, doomed, batch_of([b"x"]))
        assert disk.holding.wait(60)
        delete_topic(other, doomed)
        # The last close of a file frees its memory: the event loop must not be the last one.
        create_topic(other)
        assert disk.listdir("/disk/deleted")
        disk.release_syncs()

        answer(client)
        append(client, lasting, b"y")
        until(lambda: not disk.listdir("/disk/deleted"))
        assert running.broker.stages.storage.partitions.directories[0].health.offline is None


def test_interval_acks_at_once_and_syncs_soon() -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush="interval", penstock_flush_interval_ms="20") as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        before = disk.syncs
        disk.hold_syncs()
        append(client, topic, b"x")
        assert values_in(fetch(client, topic, 0)) == [b"x"]
        disk.release_syncs()

        until(lambda: disk.syncs > before)


@pytest.mark.parametrize("policy", ["group", "interval"])
def test_records_written_after_a_sync_get_a_sync_of_their_own(policy: str) -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush=policy, penstock_flush_interval_ms="20") as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        for _ in range(3):
            append_synced(client, topic, disk)


def test_os_never_syncs_until_the_broker_stops() -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush="os", **NO_CHECKPOINTS) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        before = disk.syncs
        for _ in range(20):
            append(client, topic, b"x")
        assert values_in(fetch(client, topic, 0)) == [b"x"] * 20
        assert disk.syncs == before
    assert disk.syncs > before


@pytest.mark.parametrize("policy", ["group", "interval", "os"])
def test_an_orderly_end_brings_everything_to_the_disk(policy: str) -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush=policy) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
    disk.restart(power_loss=True)

    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        assert values_in(fetch(client, topic, 0)) == [b"x"]


def test_group_acknowledged_records_survive_a_power_loss() -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush="group") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
        survivor = Disk()
        survivor.root = disk._survivor(disk.root, disk.changes)

    with on_disk(survivor) as running, RawClient(running.bootstrap) as client:
        assert values_in(fetch(client, topic, 0)) == [b"x"]


def test_flush_messages_makes_acknowledgements_wait_for_the_disk_once_so_many_are_unsynced() -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush="os", **NO_CHECKPOINTS) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client, configs={"flush.messages": "3"})
        synced = disk.syncs
        append(client, topic, b"1")
        append(client, topic, b"2")
        assert disk.syncs == synced
        append(client, topic, b"3")
        assert disk.syncs > synced


def test_flush_ms_syncs_records_after_that_time() -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush="os") as running, RawClient(running.bootstrap) as client:
        append_synced(client, create_topic(client, configs={"flush.ms": "20"}), disk)


def test_flush_ms_of_nothing_syncs_several_partitions_of_one_request() -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush="os") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=2, configs={"flush.ms": "0"})
        version = PRODUCE.max_version
        request, other = (
            produce_request(topic, batch_of([b"x"]), partition=partition, version=version)
            for partition in range(2)
        )
        request.topic_data[0].partition_data += other.topic_data[0].partition_data
        (answer,) = client.call(PRODUCE, version, request).responses
        assert [partition.error_code for partition in answer.partition_responses] == [0, 0]


def test_a_topic_with_a_long_flush_ms_does_not_delay_other_topics() -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush="interval", penstock_flush_interval_ms="20") as running,
        RawClient(running.bootstrap) as client,
    ):
        patient, other = create_topic(client, configs={"flush.ms": "3600000"}), create_topic(client)
        append_synced(client, other, disk)
        append(client, patient, b"x")
        append_synced(client, other, disk)


def test_flush_ms_counts_from_the_first_write_after_it_was_set() -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush="os") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"1")
        set_config(client, TOPIC, topic.name, "flush.ms", "20")
        append_synced(client, topic, disk)


def test_a_flush_that_could_not_be_planned_happens_with_the_next_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, planned, failed = Disk(), Log.flush_plan, threading.Event()

    def fail_once(log: Log) -> FlushPlan:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        return planned(log)

    with (
        on_disk(disk, penstock_flush="interval", penstock_flush_interval_ms="20") as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        append_synced(client, topic, disk)
        monkeypatch.setattr(Log, "flush_plan", fail_once)
        append(client, topic, b"x")
        assert failed.wait(60)
        append_synced(client, topic, disk)


def in_memory(policy: FlushPolicy) -> tuple[Flusher, SystemWorkers]:
    """A flusher of a directory in memory, and the one thread that it uses."""
    workers = SystemWorkers(lambda: 1)
    directory = DataDirectory.open(MemoryFiles(), "/data", cluster_id=None, node_id=1, rng=SystemRng())
    return Flusher(directory, policy, 1.0, workers), workers


def test_a_callback_that_fails_and_a_waiter_that_gave_up_do_not_end_the_syncs() -> None:
    async def check() -> None:
        flusher, workers = in_memory("os")

        def fail(error: StorageError | None) -> None:
            raise RuntimeError("cannot take it")

        flusher.when_flushed(fail)
        await asyncio.wait_for(flusher.flush(), 60)
        impatient = asyncio.ensure_future(flusher.flush())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait_for(flusher.flush(), 60)
        workers.close()

    asyncio.run(check())


def test_a_round_that_cannot_be_planned_keeps_its_callbacks_for_the_next() -> None:
    async def check() -> None:
        flusher, workers = in_memory("group")
        loop = asyncio.get_running_loop()
        failure: asyncio.Future[str] = loop.create_future()
        loop.set_exception_handler(lambda _, context: failure.set_result(repr(context["exception"])))
        partition = Unplannable()
        flusher.wrote(partition)
        waiting = asyncio.ensure_future(flusher.flush())
        assert await asyncio.wait_for(failure, 60) == "MemoryError()"
        assert not partition.unsynced
        assert not waiting.done()
        flusher.forget(partition)
        await asyncio.wait_for(flusher.flush(), 60)
        await asyncio.wait_for(waiting, 60)
        workers.close()

    asyncio.run(check())


def test_an_abandoned_flusher_runs_no_callback_and_syncs_nothing() -> None:
    async def check() -> None:
        flusher, workers = in_memory("group")
        release = threading.Event()
        busy = workers.in_thread(release.wait, 60)
        called: list[StorageError | None] = []
        flusher.when_flushed(called.append)
        await asyncio.sleep(0)
        flusher.abandon()
        flusher.when_flushed(called.append)
        release.set()
        await busy
        await asyncio.wait_for(flusher.let_go(), 60)
        await asyncio.wait_for(workers.in_thread(release.wait), 60)
        assert not called
        assert flusher.durations.count == 0
        workers.close()

    asyncio.run(check())


class Counted:
    """A partition whose log has no files, which counts its plans and syncs."""

    hosted, hidden_bytes, flush_s, recovery_point = True, 0, None, 0

    def __init__(self, fails: bool = False) -> None:
        self.unsynced, self.fails = False, fails
        self.planned = self.synced = self.failures = 0
        self.when_planned: Callable[[], None] | None = None

    @property
    def log(self) -> Any:
        return self

    def flush_plan(self) -> Any:
        if self.fails:
            self.fails = False
            raise MemoryError
        self.planned += 1
        if self.when_planned is not None:
            asyncio.get_running_loop().call_soon(self.when_planned)
        return self

    def sync(self, synced: bool = False) -> None:
        pass

    def flush_failed(self, plan: Any) -> None:
        self.failures += 1

    def flushed(self, *_: Any) -> None:
        """Of the log, and of the partition."""
        self.synced += 1


_LOGS = 3500


def test_the_sync_of_many_logs_is_planned_in_slices() -> None:
    """10,000 logs held the event loop for 33 ms."""

    async def check() -> None:
        flusher, workers = in_memory("group")
        partitions = [Counted() for _ in range(_LOGS)]
        most = [0, 0]

        def look(planned: int = 0, synced: int = 0) -> None:
            now = sum(each.planned for each in partitions), sum(each.synced for each in partitions)
            most[:] = max(most[0], now[0] - planned), max(most[1], now[1] - synced)
            if not waiting.done():
                loop.call_soon(look, *now)

        for each in partitions:
            flusher.wrote(each)
        # The first slice has both of them planned or not when they are written to, or removed.
        partitions[0].when_planned = lambda: flusher.wrote(partitions[0])
        partitions[1].when_planned = lambda: flusher.forget(partitions[-1])
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(flusher.flush())
        loop.call_soon(look)
        await asyncio.wait_for(waiting, 60)
        partitions[0].when_planned = None
        await asyncio.wait_for(flusher.flush(), 60)
        assert partitions[-1].planned == 0
        assert partitions[0].planned >= 2
        assert all(each.planned == 1 and each.synced == 2 for each in partitions[1:-1])
        assert most[0] <= 1000
        assert most[1] <= 2 * 1000
        workers.close()

    asyncio.run(check())


def test_a_large_round_that_cannot_be_planned_is_repeated_as_a_whole() -> None:
    async def check() -> None:
        flusher, workers = in_memory("group")
        failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failure.set_result(repr(context["exception"]))
        )
        partitions = [Counted(fails=number == _LOGS - 5) for number in range(_LOGS)]
        for each in partitions:
            flusher.wrote(each)
        waiting = asyncio.ensure_future(flusher.flush())
        assert await asyncio.wait_for(failure, 60) == "MemoryError()"
        assert not waiting.done()
        assert not any(each.synced for each in partitions)
        await asyncio.wait_for(flusher.flush(), 60)
        await asyncio.wait_for(waiting, 60)
        assert all(each.planned == 1 + each.failures and each.synced == 2 for each in partitions)
        workers.close()

    asyncio.run(check())


class Unplannable:
    """A partition whose plan cannot be made."""

    unsynced, hosted, hidden_bytes, flush_s = False, True, 0, None

    @property
    def log(self) -> Log:
        raise MemoryError

    def flushed(self, end_offset: int, size: int) -> None:
        raise AssertionError("it was never synced")
