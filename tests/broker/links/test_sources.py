"""Sources that refuse a link, or send damaged records."""

from __future__ import annotations

import threading

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker.replica.partition import Partition
from penstock.security.client_names import java_names
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.broker.links.clusters import DEFAULTS, create, ends_at, lines, link, log_of, records, reports
from tests.broker.links.commands import link_configs
from tests.broker.metadata_damage import flip
from tests.waiting import eventually


def test_a_credential_that_the_source_refuses_is_reported_and_can_be_replaced() -> None:
    """TLS and SCRAM; what was mirrored stays, and the secret is not shown."""
    with broker(config=DEFAULTS, secure=True) as source, broker(config=DEFAULTS) as destination:
        client = {"bootstrap.servers": source.bootstrap, **source.client_config}
        new = destination.bootstrap
        admin = AdminClient(client)
        (created,) = admin.create_topics([NewTopic("orders", 1, 1)]).values()
        created.result(30)
        producer = Producer(client)
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        right = java_names(source.client_config)
        wrong = {**right, "sasl.password": "expired"}
        link(new, source.bootstrap, **right)
        ends_at(new, "orders", 1)
        link(new, source.bootstrap, **wrong)
        eventually(lambda: any("authentication" in each.lower() for each in reports(new)))
        producer.produce("orders", b"two")
        assert producer.flush(30) == 0
        assert [each[3] for each in records(new, "orders")] == [b"one"]
        with lines(new) as line:
            assert link_configs(line, "west")["sasl.password"] == "(hidden)"
        link(new, source.bootstrap, **right)
        ends_at(new, "orders", 2)
        assert [each[3] for each in records(new, "orders")] == [b"one", b"two"]


def test_damaged_batches_of_the_source_are_not_appended() -> None:
    """The mirror waits before the damage, and goes on once the source has sound records there."""
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        producer = Producer({"bootstrap.servers": old})
        for value in (b"one", b"two" * 1000, b"three"):
            producer.produce("orders", value)
            assert producer.flush(30) == 0
        damage(source, "orders", 500)
        link(new, old)
        ends_at(new, "orders", 1)
        eventually(lambda: refused(new))
        assert [each[3] for each in records(new, "orders")] == [b"one"]
        damage(source, "orders", 500)
        ends_at(new, "orders", 3)
        assert records(new, "orders") == records(old, "orders")


def refused(bootstrap: str) -> bool:
    found = log_of(bootstrap, "orders")
    return found is not None and found.phase == "retrying" and found.errors > 1


def damage(source: BrokerThread, topic: str, position: int) -> None:
    """Change a bit of a log; once more takes it back."""
    done = threading.Event()

    def change() -> None:
        stages = source.broker.stages
        partition = stages.storage.partitions.find(topic, 0)
        assert isinstance(partition, Partition)
        flip(stages.world.files, partition.log.segments.active.path(".log"), position)  # type: ignore[arg-type]
        done.set()

    source.broker.stages.listening.server.loop.call_soon_threadsafe(change)
    assert done.wait(30)
