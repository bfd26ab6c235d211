"""A broker for tests of queues: members get partitions soon, and the test moves the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import Producer

from penstock.client.queues.connections import Connections, security_from
from penstock.testing.clusters import Cluster
from penstock.wire.apis import describe_share_group_offsets as offsets

__all__ = ["QueueCluster", "queues"]

T = TypeVar("T")
_WAIT_S: Final = 60.0
#: members get their partitions soon, and locks may be short
_SETTINGS: Final = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
}


class QueueCluster(Cluster):
    """A cluster with what tests of queues need. `advance` lets locks expire and delays pass."""

    def send(
        self,
        topic: str,
        *values: str | bytes,
        key: str | bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Send messages at least once, and wait until they are acknowledged."""
        # librdkafka takes half a second to notice a topic that was created for it.
        self._connected(lambda connections: connections.refresh([topic]))
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.client_config})
        for value in values:
            producer.produce(topic, value, key, headers=dict(headers or {}))
        if producer.flush(_WAIT_S):
            raise TimeoutError(f"the messages were not delivered to {topic}")

    def lag(self, group: str) -> int:
        """The messages of a share group that are neither accepted nor given up. 0 if the group has none."""

        async def find(connections: Connections) -> int:
            address = await connections.coordinator(group)
            if address is None:
                return 0
            wanted = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
            request = offsets.DescribeShareGroupOffsetsRequest(groups=[wanted])
            response = await connections.send_to(
                address, offsets.DESCRIBE_SHARE_GROUP_OFFSETS, request, _WAIT_S
            )
            return sum(
                max(0, partition.lag) for topic in response.groups[0].topics for partition in topic.partitions
            )

        return self._connected(find)

    def _connected(self, work: Callable[[Connections], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on an event loop of its own: the test's loop, if there is one, is busy with the call."""

        async def run() -> T:
            connections = Connections(self.bootstrap, "penstock-testing", security_from(self.client_config))
            try:
                return await work(connections)
            finally:
                connections.close()

        with ThreadPoolExecutor(1) as threads:
            return threads.submit(asyncio.run, run()).result()


@contextmanager
def queues(
    brokers: int = 1, *, config: Mapping[str, object] | None = None, secure: bool = False
) -> Iterator[QueueCluster]:
    """A running cluster with share groups, in memory; `config` takes broker configs under Kafka's names."""
    replicas = min(3, brokers)
    settings = {
        **_SETTINGS,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": max(1, replicas - 1),
        "share.coordinator.state.topic.num.partitions": 4,
        **(config or {}),
    }
    running = QueueCluster(brokers, settings, secure=secure)
    try:
        running.open()
        yield running
    finally:
        running.close()
