"""The table of partitions by topic name and topic id.

`find` is on the path of every request: two dictionary look-ups. For a partition without a replica on this
broker, and for one that cannot be opened, the table has the error code for clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from penstock.broker.base.metrics import Traffic
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.unclean_replicas import UncleanReplicas
from penstock.metadata.image import TopicImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.storage.directory import DataDirectory
from penstock.wire.messages import Skeleton

__all__ = ["PartitionTable", "Slot"]

Slot: TypeAlias = Partition | ErrorCode
#: partitions that were asked for too early; clients choose their names, which have at most so many characters
_EARLY_MAX: Final = 1000
_NAME_MAX: Final = 249
#: directories that clients have chosen for replicas that are not here yet
_PREFERRED_MAX: Final = 10_000


class PartitionTable:
    """All partitions of the cluster that this broker has heard of, here or not."""

    def __init__(self, on_unclean: Callable[[], None]) -> None:
        """`on_unclean` is called after a replica was marked as unclean."""
        self._by_name: dict[str, dict[int, Slot]] = {}
        #: the partitions that are here; None after a change
        self._here: tuple[Partition, ...] | None = ()
        self._by_id: dict[TopicId, dict[int, Slot]] = {}
        self._names: dict[TopicId, str] = {}
        self._acknowledgements: dict[TopicId, dict[int, Skeleton]] = {}
        #: what clients have written and read, by topic
        self.traffic = Traffic()
        #: replicas that may lack committed records, which the controller has yet to exclude
        self.unclean = UncleanReplicas(on_unclean)
        #: true if the wall clock may refuse timestamps
        self.clock_trusted = True
        #: the data directories that clients have chosen for replicas that may come; the oldest first
        self.preferred: dict[tuple[str, int], DataDirectory] = {}
        #: replicas that are out of service until a restart: a failed disk has interrupted their move
        self.interrupted: dict[tuple[TopicId, int], None] = {}
        #: partitions that were not here, or not yet, when a client sent batches for them; the oldest first
        self._early: dict[tuple[str | TopicId, int], None] = {}

    def prefer(self, topic: str, index: int, directory: DataDirectory) -> None:
        """Have a replica that is not here yet created in a directory, if it comes."""
        if len(self.preferred) >= _PREFERRED_MAX:
            del self.preferred[next(iter(self.preferred))]
        self.preferred[topic, index] = directory

    def interrupt(self, topic: TopicImage, index: int) -> None:
        """Keep a replica out of service: it is not known which of two folders is its log."""
        self.slots(topic)[index] = ErrorCode.KAFKA_STORAGE_ERROR
        self.interrupted[topic.id, index] = None

    def trust_clock(self, trusted: bool) -> None:
        """Have producers' timestamps checked against the wall clock, or not while it is not trusted."""
        self.clock_trusted = trusted
        for partition in self:
            partition.log.trust_clock(trusted)

    def find(self, topic: str | TopicId, index: int) -> Slot:
        """The partition, or why there is none."""
        if isinstance(topic, str):
            slots = self._by_name.get(topic)
        else:
            slots = self._by_id.get(topic)
            if slots is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        if slots is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return slots.get(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def refused(self, topic: str | TopicId, index: int) -> None:
        """A batch for a partition that is not here was refused. The broker may hear of the topic next."""
        if len(topic) <= _NAME_MAX:
            if len(self._early) >= _EARLY_MAX:
                del self._early[next(iter(self._early))]
            self._early[topic, index] = None

    def begins_to_lead(self, partition: Partition, leader_epoch: int) -> None:
        """Have gaps in sequences retried, where an earlier leader or this broker may have refused a batch."""
        gaps, index = partition.log.appender.sequence_gaps, partition.index
        gaps.led(leader_epoch)
        for topic in (partition.topic, partition.topic_id):
            if (topic, index) in self._early:
                del self._early[topic, index]
                gaps.refused()

    def __iter__(self) -> Iterator[Partition]:
        """The partitions that are here now."""
        here = self._here
        if here is None:
            topics = self._by_name.values()
            here = self._here = tuple(
                slot for slots in topics for slot in slots.values() if isinstance(slot, Partition)
            )
        return iter(here)

    def hosts(self, topic_id: TopicId, index: int) -> bool:
        """Returns true if the partition has its place here, even if its directory cannot hold it now."""
        slot = self._by_id.get(topic_id, {}).get(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return slot is not ErrorCode.NOT_LEADER_OR_FOLLOWER

    def knows(self, topic_id: TopicId) -> bool:
        return topic_id in self._by_id

    def of_topic(self, name: str) -> Mapping[int, Slot]:
        return self._by_name.get(name, {})

    def indexes(self, topic_id: TopicId) -> list[int]:
        """The partitions of a topic that have a place in the table."""
        return list(self._by_id.get(topic_id, ()))

    def slots(self, topic: TopicImage) -> dict[int, Slot]:
        """The places of a topic's partitions, which has them from now on.

        A caller that changes them does so before the table is read again.
        """
        self._here = None
        slots = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = slots
        self._names[topic.id] = topic.name
        return slots

    def acknowledgements(self, topic: TopicImage) -> dict[int, Skeleton]:
        """How producers are answered, by version: one for all partitions of a topic."""
        return self._acknowledgements.setdefault(topic.id, {})

    def mark_unclean(self, topic_id: TopicId, index: int, reason: str) -> None:
        """Have the controller exclude a replica from the ISR and the eligible leaders, whatever its role."""
        self.unclean.mark(topic_id, index, self._names.get(topic_id, topic_id.hex()), reason)

    def drop(self, topic_id: TopicId) -> tuple[str, dict[int, Slot]]:
        """Forget a topic; its name and the places of its partitions."""
        self._here = None
        slots = self._by_id.pop(topic_id, {})
        name = self._names.pop(topic_id, "")
        self._acknowledgements.pop(topic_id, None)
        self.traffic.drop(topic_id)
        if self._by_name.get(name) is slots:
            del self._by_name[name]
        return name, slots
