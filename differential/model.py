"""The generator's model of the cluster: topics, producers, groups and fetch sessions.

It never learns whether a request succeeded. A wrong belief yields a request that both brokers refuse, and
they have to agree about that as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from differential.operations import (
    member_label,
    producer_label,
    session_label,
    topic_id_label,
    transaction_epoch_label,
    transactional_label,
)
from penstock.wire.api import Api

__all__ = ["Group", "Model", "Producer", "Session", "Topic", "TransactionalProducer"]

T = TypeVar("T")
#: a time in the past, so that records need no clock
START_MS: Final = 1_700_000_000_000
MISSING: Final = "~missing"


@dataclass
class Topic:
    name: str
    id: bytes
    partitions: int
    #: records that were produced to it, at most
    records: int = 0


@dataclass
class Producer:
    id: int
    epoch: int = 0
    #: the next sequence by (topic, partition)
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass
class TransactionalProducer:
    """The producer of a transactional id. Its id and epoch are labels."""

    number: int
    is_initialized: bool = False
    #: the next sequence by (topic, partition)
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"~txn-{self.number}"

    @property
    def id(self) -> int:
        return transactional_label(self.number)

    @property
    def epoch(self) -> int:
        return transaction_epoch_label(self.number)

    @property
    def is_new_protocol(self) -> bool:
        """Returns true for transaction.version 2."""
        return self.number % 2 == 1


@dataclass
class Group:
    """A group of one protocol with at most one classic member."""

    name: str
    member: str = ""
    #: members of the consumer protocol, and the instance ids of the static ones
    members: dict[str, str | None] = field(default_factory=dict)
    #: the topic that the topology of a streams group reads
    source: str = ""


@dataclass
class Session:
    id: int
    epoch: int = 1


class Model:
    """Random choices of things that may exist, or sometimes do not."""

    def __init__(
        self, random: Random, versions: dict[int, tuple[int, int]], *, topics_change: bool = True
    ) -> None:
        """`topics_change` says whether operations may delete topics, or change their partitions."""
        self.random = random
        self.topics_change = topics_change
        self._versions = versions
        self.topics: dict[str, Topic] = {}
        self._incarnations: dict[str, int] = {}
        self.producers: list[Producer] = []
        self.transactional = [TransactionalProducer(number) for number in range(3)]
        self.sessions: list[Session] = []
        self.classic_groups = [Group(f"~classic-{n}") for n in range(2)]
        self.consumer_groups = [Group(f"~consumer-{n}") for n in range(2)]
        self.streams_groups = [Group(f"~streams-{n}") for n in range(2)]
        self._members = 0

    # -- choices

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *values: T) -> T:
        return self.random.choice(values)

    def version(self, api: Api[Any, Any]) -> int:
        """A version that both brokers have; the newest one most of the time."""
        low, high = self._versions[api.key]
        return high if self.chance(0.4) else self.random.randint(low, high)

    def number(self, usual: int) -> int:
        """A number around `usual`, or one that makes no sense."""
        if self.chance(0.85):
            return self.random.randint(0, max(0, usual))
        return self.pick(-1, -2, usual + 1, usual + 1000, 2**31 - 1, -(2**31))

    # -- topics

    def new_topic(self, name: str, partitions: int) -> Topic:
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return Topic(name, topic_id_label(name, incarnation), partitions)

    def topic(self) -> Topic:
        if self.topics and self.chance(0.95):
            return self.pick(*self.topics.values())
        return Topic(MISSING, topic_id_label(MISSING, 1), 1)

    def some_topics(self) -> list[Topic]:
        """Different topics, at least one."""
        chosen = {topic.name: topic for topic in (self.topic() for _ in range(self.pick(1, 1, 2, 3)))}
        return list(chosen.values())

    def partition(self, topic: Topic) -> int:
        return self.random.randrange(topic.partitions) if self.chance(0.95) else self.pick(-1, 7, 2**31 - 1)

    def some_partitions(self, topic: Topic) -> list[int]:
        return sorted({self.partition(topic) for _ in range(self.pick(1, 1, 2, 3))})

    def offset(self, topic: Topic) -> int:
        return self.number(topic.records)

    def time_ms(self) -> int:
        return START_MS + self.random.randrange(1000)

    # -- clients

    def new_producer(self) -> Producer:
        producer = Producer(producer_label(len(self.producers)))
        self.producers.append(producer)
        return producer

    def new_session(self) -> Session:
        session = Session(session_label(len(self.sessions)))
        self.sessions.append(session)
        return session

    def new_member(self) -> str:
        self._members += 1
        return member_label(self._members)

    def group(self) -> Group:
        return self.pick(*self.classic_groups, *self.consumer_groups, *self.streams_groups)
