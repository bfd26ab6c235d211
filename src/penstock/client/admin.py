"""Lists and changes topics, configs, groups and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as _Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.client.descriptions import (
    ClusterMetadata,
    Group,
    Topic,
    TopicDescription,
    cluster_metadata,
    group_description,
    topic_description,
)
from penstock.client.errors import ClientClosed, MisusedClient, Refused, translated
from penstock.client.first_contact import FirstContact
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.links import Links

__all__ = ["Admin"]

T = TypeVar("T")
#: how often the first request looks for errors of connections
_CONTACT_S: Final = 0.05


class Admin:
    """Manages a cluster; use it in `async with`, or call `start` and `close`.

    Why it has more than 25 methods: one per operation, as in the admin clients of Kafka.
    """

    def __init__(
        self, bootstrap: str, *, timeout: float = 10.0, config: Mapping[str, Any] | None = None
    ) -> None:
        """`config` takes what has no name here (security, for example) under librdkafka's names."""
        self._bootstrap = bootstrap
        self._links: Links | None = None
        self._contact = FirstContact(bootstrap, timeout)
        self._config = self._contact.configure(
            {"bootstrap.servers": bootstrap, "log_level": 2, **(config or {})}
        )
        self._timeout = timeout
        self._rk: Any = None
        self._closed = False

    async def start(self) -> None:
        try:
            self._rk = AdminClient(self._config)
        except KafkaException as e:
            raise MisusedClient(f"librdkafka does not accept this configuration: {e.args[0].str()}") from e

    async def close(self) -> None:
        self._closed = True
        if self._links is not None:
            self._links.close()
        last_reference, self._rk = [self._rk], None
        await asyncio.to_thread(last_reference.clear)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- the cluster

    async def metadata(self) -> ClusterMetadata:
        """Brokers, controller, and the partitions of all topics with leaders, replicas and ISRs."""
        future = self._sent(lambda rk: rk.describe_cluster(request_timeout=self._timeout))
        cluster = await self._answer(future)
        found = await self._blocking(lambda rk: rk.list_topics(timeout=self._timeout))
        return cluster_metadata(cluster, found.topics)

    @property
    def links(self) -> Links:
        """Links that mirror topics of other clusters here."""
        if self._links is None:
            # Imported on first use: the wire codec takes longer to import than all other clients.
            from penstock.client.links import Links

            self._links = Links(self._bootstrap, self._timeout, self._config, self._met)
        return self._links

    # -- topics

    async def topic(self, name: str) -> TopicDescription:
        """The partitions of a topic, and when it was created and last changed.

        The times are None if the cluster does not keep them, as Apache Kafka, or did not when they passed.
        """
        collection = TopicCollection([name])
        found = await self._one(lambda rk: rk.describe_topics(collection, request_timeout=self._timeout))
        return topic_description(found, await self._config_entries(name))

    async def topics(self) -> dict[str, Topic]:
        """All topics but the internal ones."""
        metadata = await self._blocking(lambda rk: rk.list_topics(timeout=self._timeout))
        return {
            name: Topic(
                name,
                len(topic.partitions),
                max((len(p.replicas) for p in topic.partitions.values()), default=0),
            )
            for name, topic in metadata.topics.items()
            if not name.startswith("__")
        }

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """-1 replicas are as many as the cluster's default says.

        `if_not_exists` leaves an existing topic as it is.
        """
        new = NewTopic(name, partitions, replicas, config=dict(config or {}))
        try:
            await self._one(lambda rk: rk.create_topics([new], request_timeout=self._timeout))
        except Refused as error:
            if not (if_not_exists and error.code == KafkaError.TOPIC_ALREADY_EXISTS):
                raise

    async def delete_topic(self, name: str) -> None:
        await self._one(lambda rk: rk.delete_topics([name], request_timeout=self._timeout))

    async def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions to `total`. Keys may move: their hash is taken of the number."""
        new = NewPartitions(topic, total)
        await self._one(lambda rk: rk.create_partitions([new], request_timeout=self._timeout))

    async def config(self, topic: str) -> dict[str, str]:
        """All configs of a topic, defaults included."""
        found = await self._config_entries(topic)
        return {name: entry.value for name, entry in found.items() if not entry.is_read_only}

    async def _config_entries(self, topic: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries: dict[str, Any] = await self._one(
            lambda rk: rk.describe_configs([resource], request_timeout=self._timeout)
        )
        return entries

    async def set_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Change some configs and leave the others; None goes back to the default."""
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        await self._one(lambda rk: rk.incremental_alter_configs([resource], request_timeout=self._timeout))

    async def end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The offset that the next message of each partition will get."""
        metadata = await self._blocking(lambda rk: rk.list_topics(topic, timeout=self._timeout))
        if metadata.topics[topic].error is not None:
            raise translated(metadata.topics[topic].error)
        return await self._ends([TopicPartition(topic, p) for p in metadata.topics[topic].partitions])

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the messages before these offsets, for good; -1 deletes all that are committed.

        Returns the first offset that each partition has now. `Refused` names the first partition that failed;
        others may have been changed.
        """
        if not before:
            return {}
        wanted = [_Place(*partition, offset) for partition, offset in before.items()]
        futures = self._sent(lambda rk: rk.delete_records(wanted, request_timeout=self._timeout))
        return {
            TopicPartition(place.topic, place.partition): (await self._answer(future)).low_watermark
            for place, future in futures.items()
        }

    async def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = {_Place(*partition): OffsetSpec.latest() for partition in partitions}
        futures = (
            self._sent(lambda rk: rk.list_offsets(wanted, request_timeout=self._timeout)) if wanted else {}
        )
        return {
            TopicPartition(place.topic, place.partition): (await self._answer(future)).offset
            for place, future in futures.items()
        }

    # -- groups

    async def groups(self) -> list[str]:
        """The names of all groups."""
        future = self._sent(lambda rk: rk.list_consumer_groups(request_timeout=self._timeout))
        return sorted(group.group_id for group in (await self._answer(future)).valid)

    async def group(self, name: str) -> Group:
        found = await self._one(lambda rk: rk.describe_consumer_groups([name], request_timeout=self._timeout))
        return group_description(name, found)

    async def delete_group(self, name: str) -> None:
        await self._one(lambda rk: rk.delete_consumer_groups([name], request_timeout=self._timeout))

    async def offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group: the next message to read, for each partition."""
        request = [ConsumerGroupTopicPartitions(group)]
        found = await self._one(
            lambda rk: rk.list_consumer_group_offsets(request, request_timeout=self._timeout)
        )
        return {
            TopicPartition(p.topic, p.partition): p.offset for p in found.topic_partitions if p.offset >= 0
        }

    async def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members."""
        request = [
            ConsumerGroupTopicPartitions(group, [_Place(*tp, offset) for tp, offset in offsets.items()])
        ]
        found = await self._one(
            lambda rk: rk.alter_consumer_group_offsets(request, request_timeout=self._timeout)
        )
        for place in found.topic_partitions:
            if place.error is not None:
                raise translated(place.error)

    async def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many messages a group has yet to read, in the partitions that it has committed in."""
        committed = await self.offsets(group)
        ends = await self._ends(list(committed))
        return {partition: ends[partition] - offset for partition, offset in committed.items()}

    # -- requests

    async def _one(self, request: Callable[[Any], Mapping[Any, Any]]) -> Any:
        """The answer to a request about one thing."""
        (future,) = self._sent(request).values()
        return await self._answer(future)

    def _sent(self, request: Callable[[Any], T]) -> T:
        try:
            return request(self._running())
        except KafkaException as e:
            raise translated(e) from e
        except (TypeError, ValueError) as e:
            raise MisusedClient(str(e)) from e

    async def _answer(self, future: Any) -> Any:
        answer = asyncio.wrap_future(future)
        if not self._contact.made:
            await self._meet(answer)
        try:
            return await answer
        except KafkaException as e:
            raise translated(e) from e

    async def _meet(self, answer: asyncio.Future[Any]) -> None:
        """Wait for the first answer; `AuthenticationFailed` as soon as it is known that none will come."""
        loop, rk, contact = asyncio.get_running_loop(), self._running(), self._contact
        contact.begin(loop.time())
        while not (await asyncio.wait({answer}, timeout=_CONTACT_S))[0]:
            rk.poll(0)  # errors of connections
            if contact.is_overdue(loop.time()):
                error = await contact.verify(rk)
                if error is not None:
                    # librdkafka answers later; asyncio would report that nothing took the answer.
                    answer.add_done_callback(_taken)
                    raise error
        contact.made = answer.exception() is None or contact.made

    async def _blocking(self, request: Callable[[Any], T]) -> T:
        await self._met()  # a thread that waits for librdkafka cannot be interrupted
        rk = self._running()
        try:
            return await asyncio.to_thread(request, rk)
        except KafkaException as e:
            raise translated(e) from e

    async def _met(self) -> None:
        """Return once a broker has responded to this client."""
        self._running()
        if not self._contact.made:
            await self._answer(self._sent(lambda rk: rk.describe_cluster(request_timeout=self._timeout)))

    def _running(self) -> Any:
        if self._closed:
            raise ClientClosed("admin client")
        if self._rk is None:
            raise MisusedClient("this admin client has not started: use `async with`, or await start()")
        return self._rk


def _taken(answer: asyncio.Future[Any]) -> None:
    """Take the result of a request that nothing waits for any more."""
    if not answer.cancelled():
        answer.exception()
