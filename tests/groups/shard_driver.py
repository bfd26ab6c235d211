"""Drives one group shard in tests: virtual time, a log that is a list, and the responses in order."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from penstock.coordination.outbox import Effect, bytes_of, response_of
from penstock.groups.consumer_protocol import Subscription, TopicPartitionList
from penstock.groups.ledger import Client, Environment
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.targets import ReportRefusedTarget
from penstock.groups.topic_regexes import ResolveTopicRegexes
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.model.regexes import compile_regex, matching_names
from penstock.wire.compiler import encoder
from penstock.wire.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from penstock.wire.schema import Struct

__all__ = ["PendingRequest", "ShardDriver", "subscription", "topic_id"]

_encode_subscription = encoder(Subscription, 1, False)
START_MS = 1_700_000_000_000
Operation = Callable[[GroupShard, "PendingRequest"], Struct | None]
A = TypeVar("A", bound=Struct)


def subscription(topics: Iterable[str], owned: Iterable[tuple[str, list[int]]] = ()) -> bytes:
    """The subscription of a classic consumer, encoded."""
    message = Subscription(
        topics=list(topics),
        owned_partitions=[TopicPartitionList(topic=topic, partitions=indexes) for topic, indexes in owned],
    )
    (body,) = _encode_subscription(message)
    assert isinstance(body, bytes | bytearray)
    return struct.pack(">h", 1) + bytes(body)


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"."))


class PendingRequest:
    """A request. `response` is None until the shard replies; `error` is the error that the shard raised."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.response: Struct | None = None
        self.error = ErrorCode.NONE

    @property
    def answered(self) -> bool:
        return self.response is not None or self.error != ErrorCode.NONE


class ShardDriver:
    """Drives a shard as the runtime does, except that every append is committed at once."""

    def __init__(self, settings: GroupSettings | None = None, topics: dict[str, int] | None = None) -> None:
        numbers = count(1)
        self.image = ClusterImage()
        self.env = Environment(settings or GroupSettings(), self.image, lambda: str(next(numbers)))
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        #: in the order of the replies
        self.answered: list[PendingRequest] = []
        #: effects that the runtime would write to the log of the broker
        self.refused: list[ReportRefusedTarget] = []
        #: all effects, in their order
        self.effects: list[Effect] = []
        for name, partitions in (topics or {}).items():
            self.add_topic(name, partitions)
        self.shard = GroupShard(self.env)
        self.restart()

    def restart(self) -> None:
        """The coordinator crashes, or moves: a new shard replays the log."""
        self.shard = self.replica()
        self._begin()
        self.shard.on_loaded()
        self._end()

    def replica(self) -> GroupShard:
        """A new shard with the records of the log."""
        shard = GroupShard(self.env)
        for offset, (key, value) in enumerate(self.log):
            shard.replay(offset, -1, -1, key, value)
        return shard

    def submit(self, name: str, operation: Operation) -> PendingRequest:
        pending = PendingRequest(name)
        self._begin()
        try:
            response = operation(self.shard, pending)
        except ApiError as e:
            pending.error = e.code
            response = None
        if response is not None or pending.error:
            pending.response = response
            self.answered.append(pending)
        self._end()
        return pending

    def notify(self, event: Callable[[GroupShard], None]) -> None:
        self._begin()
        event(self.shard)
        self._end()

    def sleep(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        until = self.now_ms + ms
        while True:
            next_ms = self.shard.timers.next_ms
            if next_ms is None or next_ms > until:
                break
            self.now_ms = max(self.now_ms, next_ms)
            self._begin()
            while (key := self.shard.timers.pop_expired()) is not None:
                self.shard.timer_expired(key)
            self._end()
        self.now_ms = until

    def add_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or add partitions to it."""
        known = self.image.topics.get(name)
        first = 0 if known is None else len(known.partitions)
        if known is None:
            self._apply(TopicRecord(name=name, topic_id=topic_id(name)))
        for index in range(first, partitions):
            record = PartitionRecord(
                partition_id=index, topic_id=topic_id(name), replicas=[1], isr=[1], leader=1
            )
            self._apply(record)

    def remove_topic(self, name: str) -> None:
        self._apply(RemoveTopicRecord(topic_id=topic_id(name)))

    def client(self, name: str, version: int = 9, regex: str | None = None) -> Client:
        """The sender of a request, whose regular expression is checked as the broker does."""
        client = Client(name, "/127.0.0.1", version)
        try:
            compile_regex(regex or "")
        except ApiError as e:
            client.regex_error = e
        return client

    def _apply(self, record: Struct) -> None:
        self.image.apply(record, self.image.offset + 1)

    def _begin(self) -> None:
        self.shard.begin(START_MS + self.now_ms, self.now_ms)

    def _end(self) -> None:
        outbox = self.shard.outbox
        effects = list(outbox.effects)
        self.log += map(bytes_of, outbox.records)
        for pending, answer in outbox.replies:
            assert isinstance(pending, PendingRequest) and not pending.answered
            pending.response = response_of(answer)
            self.answered.append(pending)
        outbox.clear()
        self.effects += effects
        for effect in effects:
            if isinstance(effect, ResolveTopicRegexes):
                self._resolve(effect)
            elif isinstance(effect, ReportRefusedTarget):
                self.refused.append(effect)

    def _resolve(self, effect: ResolveTopicRegexes) -> None:
        """The worker answers at once."""
        found = {
            regex: set(filter(effect.may_describe, matching_names(regex, self.image.topics) or ()))
            for regex in effect.regexes
        }
        self.notify(lambda shard: shard.topics_resolved(effect, found))
