"""A producer repeats a batch whose messages were moved, or consumed, and deleted, on another leader.

The new leader was down in the meantime. Its log ended before the log start of the last leader, so it has
started over at that, and knows only the batches from there on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock.model.delays import DELIVER_AT_HEADER
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.records.record import Record, build_batch
from penstock.testing import Cluster, cluster
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.apis.produce import PartitionProduceResponse
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    describe_topic,
    list_offset,
    new_producer_id,
    produce,
    read_all,
)
from tests.testing.cluster_clients import create

EARLIEST, LATEST = -2, -1
PATIENCE_S = 60.0


class Delays:
    """A delay topic on three brokers."""

    def __init__(self, running: Cluster) -> None:
        self._running = running
        create(running, "due")
        create(running, "later", **{"penstock.delay.target": "due", "retention.ms": "-1"})
        with self.leader("later") as client:
            self.topic = Topic("later", TopicId(describe_topic(client, "later").topic_id))
            self.target = Topic("due", TopicId(describe_topic(client, "due").topic_id))
            self.producer_id = new_producer_id(client)

    def leader(self, name: str) -> RawClient:
        return RawClient(self._running.address(self._running.wait_for_leader(name)))

    def batch(self, sequence: int) -> bytes:
        """A message that is due at once."""
        now_ms = round(1000 * time.time())
        record = Record(0, now_ms, None, b"%d" % sequence, ((DELIVER_AT_HEADER, b"0"),))
        return build_batch([record], producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)

    def send(self, batch: bytes) -> PartitionProduceResponse:
        with self.leader("later") as client:
            return produce(client, self.topic, batch)

    def moved(self) -> list[bytes | None]:
        with self.leader("due") as client:
            return [record.value for record in read_all(client, self.target)]

    def offsets(self) -> tuple[int, int]:
        """The log start and the end of the delay topic."""
        with self.leader("later") as client:
            return list_offset(client, self.topic, EARLIEST).offset, list_offset(
                client, self.topic, LATEST
            ).offset

    def elect(self, broker: int) -> None:
        """Have the preferred leader lead again."""
        wanted = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="later", partitions=[0])])

        def elected() -> bool:
            if self._running.leader("later") != broker:
                with self.leader("later") as client:
                    client.call(ELECT_LEADERS, 2, wanted)
            return self._running.leader("later") == broker

        self.until(elected)

    def until(self, condition: Callable[[], bool]) -> None:
        self._running.wait_until(condition, PATIENCE_S)


@pytest.mark.slow
def test_a_repeated_batch_is_moved_once() -> None:
    """Its producer has not heard of the acknowledgement."""
    with cluster(3, config={"auto.leader.rebalance.enable": "false"}) as running:
        delays = Delays(running)
        first = running.wait_for_leader("later")
        assert delays.send(delays.batch(0)).error_code == ErrorCode.NONE
        running.kill(first)
        running.wait_for_leader("later", other_than=first)
        batch = delays.batch(1)
        assert delays.send(batch).error_code == ErrorCode.NONE
        delays.until(lambda: delays.moved() == [b"0", b"1"])
        # Time for the leader to delete what it has moved, if it does so at once.
        assert delays.send(delays.batch(2)).error_code == ErrorCode.NONE
        delays.until(lambda: delays.moved() == [b"0", b"1", b"2"])
        running.start(first)
        running.wait_for_isr("later")
        delays.elect(first)
        delays.send(batch)
        assert delays.send(delays.batch(3)).error_code == ErrorCode.NONE
        delays.until(lambda: b"3" in delays.moved())
        assert delays.moved() == [b"0", b"1", b"2", b"3"]
