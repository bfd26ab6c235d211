"""Power loss under load: what `penstock.flush=group` acknowledged, or showed to a reader, stays."""

from __future__ import annotations

from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.load import Load, Reader, read_all, wait_until
from tests.interop.powered import Machine

TOPIC = "load"
PARTITIONS = 2


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, PARTITIONS, config={"segment.ms": "200", "index.interval.bytes": "256"})
    admin.create_topics([new])[TOPIC].result(timeout=60)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    rng = Random(seed)
    machine = Machine(rng, penstock_flush="group", log_dirs="/disk1,/disk2" if seed % 2 else "/disk")
    assert machine.start()
    make_topic(machine.bootstrap)
    load = Load(machine.bootstrap, TOPIC, PARTITIONS, producers=2)
    reader = Reader(machine.bootstrap, TOPIC, PARTITIONS)
    load.start()
    reader.start()
    try:
        for _ in range(5):
            machine.cut_power_after(rng.choice([rng.randint(1, 60), rng.randint(100, 1500)]))
            machine.wait_for_power_loss()
            if rng.random() < 0.5:
                # The next cut comes while the broker still repairs what this one left, or soon after.
                machine.cut_power_after(rng.randint(1, 40))
                machine.start()
                machine.wait_for_power_loss()
            assert machine.start()
        before = load.count
        wait_until(lambda: load.count > before or bool(load.errors), "an acknowledgement")
        load.stop()
        stored = read_all(machine.bootstrap, TOPIC, PARTITIONS)
        load.check(stored)
        reader.check(stored)
    finally:
        load.stop()
        reader.stop()
        machine.stop()


class Forgetful(Random):
    """Makes a disk keep nothing that was not synced."""

    def randint(self, a: int, b: int) -> int:
        return a


@pytest.mark.parametrize("change", range(1, 6))
def test_records_that_a_killed_broker_left_count_only_after_a_sync(change: int) -> None:
    """A retry is answered from what recovery found, so recovery must have made that durable."""
    machine = Machine(Forgetful(0), penstock_flush="group")
    assert machine.start()
    make_topic(machine.bootstrap)
    load = Load(machine.bootstrap, TOPIC, partitions=1, producers=1, limit=1)
    # The process dies somewhere between the write and the acknowledgement.
    machine.cut_power_after(change)
    load.start()
    machine.wait_for_power_loss(only_killed=True)
    assert machine.start()
    load.stop()
    machine.cut_power()
    assert machine.start()
    stored = read_all(machine.bootstrap, TOPIC, PARTITIONS)
    machine.stop()
    load.check(stored)
    assert load.count == 1
