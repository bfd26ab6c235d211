"""The quarantine is kept for its retention, by a clock that cannot be moved."""

from __future__ import annotations

import asyncio

from penstock.broker.app.quarantine_expiry import QuarantineExpiry
from tests.broker.disks import BrokerOnDisk, Disk, on_disk
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic
from tests.storage.logs import StillClock

DAY_MS = 24 * 60 * 60 * 1000


class MovableClock(StillClock):
    """A wall clock and a monotonic one that move apart."""

    ran_s = 0.0

    def monotonic(self) -> float:
        return self.ran_s


def expire(running: BrokerOnDisk, expiry: QuarantineExpiry) -> int:
    """How many entries are left after a round."""
    asyncio.run_coroutine_threadsafe(expiry.expire(), running._loop).result(60)
    return len(running.broker.stages.storage.partitions.directories[0].quarantine.entries())


def test_only_running_time_and_a_trusted_clock_delete(events: Events) -> None:
    with on_disk(Disk()) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "t", partitions=2)
        append(client, topic, b"x")
        broker = running.broker
        image = broker.stages.cluster.image.topics["t"]
        partitions = broker.stages.storage.partitions
        asyncio.run_coroutine_threadsafe(partitions.quarantine(image, 0, "a test"), running._loop).result(60)
        assert append(client, topic, b"y") == 0, "an empty log took its place"
        now_ms = partitions.directories[0].quarantine.entries()[0].when_ms
        clock, trusted = MovableClock(now_ms), True
        expiry = QuarantineExpiry(
            broker.stages.config,
            partitions,
            clock,
            broker.stages.world.workers,
            lambda: clock.ms if trusted else None,
        )
        assert expiry.interval_ms == 3_600_000

        clock.ms += 30 * DAY_MS
        assert expire(running, expiry) == 1, "the wall clock alone"
        clock.ran_s, trusted = 8 * DAY_MS / 1000, False
        assert expire(running, expiry) == 1, "a clock that is not trusted"
        trusted = True
        assert expire(running, expiry) == 0
    ((_, fields),) = events.of("quarantine_expired")
    assert (fields["topic"], fields["partitions"]) == ("t", [0])


def test_a_damaged_entry_is_reported_and_stays(events: Events) -> None:
    with on_disk(Disk()) as running, RawClient(running.bootstrap) as client:
        append(client, create_topic(client, "t"), b"x")
        broker = running.broker
        partitions, image = broker.stages.storage.partitions, broker.stages.cluster.image.topics["t"]
        asyncio.run_coroutine_threadsafe(partitions.quarantine(image, 0, "a test"), running._loop).result(60)
        (directory,) = partitions.directories
        (entry,) = directory.quarantine.entries()
        path = directory.quarantine.entry_path(entry.name)
        broker.stages.world.files.write_atomic(f"{path}/quarantine.json", b'{"partitions": [1]}')
        clock = MovableClock(entry.when_ms + 30 * DAY_MS)
        expiry = QuarantineExpiry(
            broker.stages.config, partitions, clock, broker.stages.world.workers, lambda: clock.ms
        )
        clock.ran_s = 30 * DAY_MS / 1000
        expire(running, expiry)
        assert broker.stages.world.files.listdir(f"{path}/data") == ["partition-0"]
    assert [fields["path"] for _, fields in events.of("quarantine_entry_damaged")] == [path]
