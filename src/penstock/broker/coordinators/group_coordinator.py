"""The broker's side of groups: which partition of `__consumer_offsets` has a group, and who asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from penstock.broker.coordinators.runtime import CoordinatorRuntime, Question
from penstock.broker.coordinators.shard_log import Loader
from penstock.groups.ledger import Client, Environment
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.metadata.configs import GROUP
from penstock.metadata.image import TOPIC
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ApiError, TopicAlreadyExists
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker
    from penstock.broker.base.context import Context

__all__ = ["GroupCoordinator", "client_of", "java_hash"]

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


def client_of(context: Context) -> Client:
    host = context.connection.peer.rpartition(":")[0]
    return Client(context.client_id or "", f"/{host}", context.version)


class GroupCoordinator:
    """Takes requests about groups to the shard that has them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._env = Environment(
            GroupSettings.of(broker.config), broker.image, self._new_uuid, self._may_expire
        )
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            lambda: GroupShard(self._env),
            broker.partitions,
            broker.clock,
            Loader(broker.workers, broker.metrics, lambda partition: broker.scrubber.mend(partition)),
            broker.config.offsets_commit_timeout_ms / 1000,
        )

    def start(self) -> None:
        """Go by the configs that the cluster has; partitions are loaded as they come to be led here."""
        self._read_configs()

    def stop(self) -> None:
        self.runtime.resign_all()

    # -- requests

    def partition_for(self, group_id: str) -> int:
        """The partition that has a group; -1 as long as there are none."""
        topic = self._broker.image.topics.get(OFFSETS_TOPIC)
        return -1 if topic is None else java_hash(group_id) % len(topic.partitions)

    def is_settled(self, group_id: str) -> bool:
        """Whether the group's partition is another broker's, or open here: a new one takes a moment."""
        index = self.partition_for(group_id)
        if index < 0:
            return False
        leader = self._broker.image.topics[OFFSETS_TOPIC].partitions[index].leader
        return leader != self._broker.node_id or index in self.runtime

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
        """Have `__consumer_offsets`; somebody else may make it at the same time."""
        broker = self._broker
        config = cast("dict[str, Any]", broker.config)
        topic = NewTopic(
            OFFSETS_TOPIC,
            config["offsets.topic.num.partitions"],
            # One that is a cluster of its own has no other place. In any other, brokers may be still to come.
            1 if broker.internal is None else config["offsets.topic.replication.factor"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
        )
        try:
            await broker.create_topic(topic)
        except TopicAlreadyExists:
            return

    # -- the cluster changes

    def elected(self, index: int) -> None:
        """This broker leads partition `index` of `__consumer_offsets`: its groups are ours."""
        self.runtime.elected(index)

    def resigned(self, index: int) -> None:
        """Somebody else leads it, or nobody."""
        self.runtime.resigned(index)

    def metadata_changed(self, records: Sequence[Struct], removed: Sequence[tuple[str, bytes]]) -> None:
        """Follow what the controller decided; `removed` are the (name, id) of topics that are gone."""
        if any(isinstance(record, ConfigRecord) and record.resource_type != TOPIC for record in records):
            self._read_configs()
        if removed:
            self.runtime.resign_gone()
            self.runtime.tell_all(lambda shard: shard.topics_deleted(removed))

    def _read_configs(self) -> None:
        """Live groups go by them from their members' next requests on."""
        config, env = self._broker.config, self._env
        env.settings = GroupSettings.of(config)
        env.own_settings = {
            name: env.settings.with_own(values, config)
            for (kind, name), values in self._broker.image.configs.items()
            if kind == GROUP
        }

    def _may_expire(self) -> bool:
        return self._broker.node.clock_watch.now_ms() is not None

    def _new_uuid(self) -> str:
        # Loaded when the first member joins: a start need not wait for it.
        from uuid import UUID

        return str(UUID(bytes=self._broker.rng.token(_UUID_BYTES), version=4))


def _decide(decide: Callable[[GroupShard, T], Struct], item: T, shard: GroupShard, _: Question) -> Struct:
    return decide(shard, item)
