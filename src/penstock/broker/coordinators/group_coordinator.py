"""The group coordinator of a broker: routes requests about groups to partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, TypeVar, cast

from penstock.broker.coordinators.runtime import CoordinatorRuntime, Question
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.partitions import Partitions
from penstock.groups.ledger import Environment
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.metadata.configs import GROUP
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, TopicAlreadyExists
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.ports import Clock, Rng
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

__all__ = ["GroupCoordinator", "java_hash"]

_UUID_BYTES: Final = 16
T = TypeVar("T")


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Java's String.hashCode, made non-negative as Kafka does: it says which partition has a group."""
    value = 0
    units = text.encode("utf-16-be")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    if value == 0x80000000:
        return 0
    return 0x100000000 - value if value & 0x80000000 else value


class GroupCoordinator:
    """Takes requests about groups to the shard that has them."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        partitions: Partitions,
        clock: Clock,
        rng: Rng,
        loader: Loader,
        create_topic: Callable[[NewTopic], Awaitable[None]],
        is_clock_trusted: Callable[[], bool],
    ) -> None:
        """`create_topic` raises the ApiError with which the controller refuses to create a topic."""
        self._config = config
        self._image = image
        self._rng = rng
        self._create_topic = create_topic
        self._env = Environment(GroupSettings.of(config), image, self._new_uuid, is_clock_trusted)
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            lambda: GroupShard(self._env),
            partitions,
            clock,
            loader,
            config.offsets_commit_timeout_ms / 1000,
        )

    def start(self) -> None:
        """Read the cluster's configs. A partition is loaded when this broker becomes its leader."""
        self._read_configs()

    def stop(self) -> None:
        self.runtime.resign_all()

    # -- requests

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds a group; -1 if the topic does not exist yet."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        return -1 if topic is None else java_hash(group_id) % len(topic.partitions)

    def is_settled(self, group_id: str) -> bool:
        """Returns true if another broker leads the group's partition, or if the partition is open here.

        Between the two a partition of a new topic is in the image, but its log is not open yet.
        """
        index = self.partition_for(group_id)
        if index < 0:
            return False
        leader = self._image.topics[OFFSETS_TOPIC].partitions[index].leader
        return leader != self._config.node_id or index in self.runtime

    def ask(
        self,
        group_id: str,
        decide: Callable[[GroupShard, Question], Struct | None],
        refusal: Callable[[ApiError], Struct],
    ) -> Any:
        """A response or a Deferred of it: what the group's shard decides."""
        return self.runtime.ask(self.partition_for(group_id), decide, refusal)

    def ask_each(
        self,
        items: Iterable[tuple[int, T]],
        decide: Callable[[GroupShard, T], Struct],
        refusal: Callable[[T, ApiError], Struct],
        finish: Callable[[list[Any]], Struct],
    ) -> Any:
        """Ask, for each of `items`, the shard of its partition; one response of all their answers."""
        answers: list[Any] = []
        left = 1
        result: Deferred[Struct] = Deferred()

        def arrived(position: int, answer: Struct) -> None:
            nonlocal left
            answers[position] = answer
            left -= 1
            if not left:
                result.resolve(finish(answers))

        for position, (index, item) in enumerate(items):
            answer = self.runtime.ask(index, partial(_decide, decide, item), partial(refusal, item))
            answers.append(answer)
            if isinstance(answer, Deferred):
                left += 1
                answer.then(partial(arrived, position))
        left -= 1
        if left:
            return result
        return finish(answers)

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` unless it exists."""
        config = cast("dict[str, Any]", self._config)
        topic = NewTopic(
            OFFSETS_TOPIC,
            config["offsets.topic.num.partitions"],
            # A broker without an internal listener is a cluster of one. In any other cluster the configured
            # number applies, even while fewer brokers are registered.
            1 if self._config.internal_endpoint is None else config["offsets.topic.replication.factor"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
        )
        try:
            await self._create_topic(topic)
        except TopicAlreadyExists:
            return

    # -- the cluster changes

    def elected(self, index: int) -> None:
        """This broker has become the leader of partition `index` of `__consumer_offsets`."""
        self.runtime.elected(index)

    def resigned(self, index: int) -> None:
        """This broker is no longer the leader of the partition."""
        self.runtime.resigned(index)

    def metadata_changed(self, records: Sequence[Struct], removed: Sequence[tuple[str, bytes]]) -> None:
        """Apply changed configs and deleted topics; `removed` has the (name, id) of the latter."""
        if any(isinstance(record, ConfigRecord) and record.resource_type != TOPIC for record in records):
            self._read_configs()
        if removed:
            self.runtime.resign_gone()
            self.runtime.tell_all(lambda shard: shard.topics_deleted(removed))

    def _read_configs(self) -> None:
        """Read the configs anew. Existing groups apply them from their members' next requests on."""
        config, env = self._config, self._env
        env.settings = GroupSettings.of(config)
        env.own_settings = {
            name: env.settings.with_own(values, config)
            for (kind, name), values in self._image.configs.items()
            if kind == GROUP
        }

    def _new_uuid(self) -> str:
        # Loaded when the first member joins: a start need not wait for it.
        from uuid import UUID

        return str(UUID(bytes=self._rng.token(_UUID_BYTES), version=4))


def _decide(decide: Callable[[GroupShard, T], Struct], item: T, shard: GroupShard, _: Question) -> Struct:
    return decide(shard, item)
