"""A topic with three records and a share group, on one broker, for one case of the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from differential.connection import Connection
from differential.model import START_MS
from differential.operations import Operation
from penstock.model.errors import ErrorCode
from penstock.records.record import Record, build_batch
from penstock.wire.api import Api
from penstock.wire.apis import create_topics as create
from penstock.wire.apis import incremental_alter_configs as configs
from penstock.wire.apis import produce
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.apis.share_acknowledge import (
    SHARE_ACKNOWLEDGE,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.wire.apis.share_fetch import SHARE_FETCH, FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest
from penstock.wire.schema import Struct

__all__ = ["RECORDS", "Ack", "Place", "Scene", "shown"]

#: (first offset, last offset, types)
Ack: TypeAlias = tuple[int, int, list[int]]
RECORDS: Final = 3
_GROUP_RESOURCE: Final = 32
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.02
#: Kafka reads the state of a share partition after the first fetch
_WAIT_MS: Final = 100


class Place:
    """A broker: the listener of clients, and the one that serves the APIs between brokers."""

    def __init__(self, host: str, port: int, internal_port: int | None = None) -> None:
        self.host = host
        self.port = port
        self.internal_port = internal_port or port


def shown(answer: Any) -> str:
    """The errors of a response: that of the whole request, or those of its partitions."""
    if not isinstance(answer, Struct):
        return str(answer)
    message: Any = answer
    if getattr(message, "error_code", 0):
        return ErrorCode(message.error_code).name
    # The order of topics and partitions has no meaning, and Kafka's is that of a hash map.
    found = sorted(text for part in _lists(message) for text in _parts(part))
    return ", ".join(found) or "NONE"


def _lists(message: Any) -> Sequence[Any]:
    for name in ("responses", "results", "groups"):
        if hasattr(message, name):
            listed: Sequence[Any] = getattr(message, name)
            return listed
    return ()


def _parts(part: Any) -> list[str]:
    """The errors of a topic's partitions, or of a group."""
    if getattr(part, "error_code", 0) or not hasattr(part, "partitions"):
        return [ErrorCode(part.error_code).name]
    return [_partition(each) for each in part.partitions]


def _partition(data: Any) -> str:
    text = ErrorCode(data.error_code).name
    if getattr(data, "acknowledge_error_code", 0):
        text += f" (acknowledgement {ErrorCode(data.acknowledge_error_code).name})"
    acquired = [
        f"{offset}x{a.delivery_count}"
        for a in getattr(data, "acquired_records", ())
        for offset in range(a.first_offset, a.last_offset + 1)
    ]
    return f"{text} {' '.join(acquired)}".strip()


class Scene:
    """One case. Groups and topics have the name of the case, members `m`."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self.group = f"group-{name}"
        self.topic = f"topic-{name}"
        self.topic_id = bytes(16)
        #: the epoch of the next request in the session of the member
        self.epoch = 0
        self._connections: list[Connection] = []
        self._line = self.connect()

    def connect(self, *, internal: bool = False) -> Connection:
        port = self._place.internal_port if internal else self._place.port
        connection = Connection(self._place.host, port)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def call(
        self, api: Api[Any, Any], request: Struct, version: int | None = None, line: Connection | None = None
    ) -> Any:
        operation = Operation("case", api, api.max_version if version is None else version, request)
        return (line or self._line).call(operation, request)

    def state(self, api: Api[Any, Any], request: Struct) -> Any:
        """Send a request between brokers."""
        return self.call(api, request, line=self.connect(internal=True))

    # -- preparation

    def create(self, partitions: int = 1) -> Scene:
        """Create the topic."""
        wanted = create.CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=1)
        answer = self.call(create.CREATE_TOPICS, create.CreateTopicsRequest(topics=[wanted]))
        (result,) = answer.topics
        assert not result.error_code, result.error_message
        self.topic_id = result.topic_id
        self.until(self._is_known)
        self.until(self._has_coordinator)
        return self

    def _is_known(self) -> bool:
        """Returns true if the broker leads the topic's partitions: Kafka answers before that."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)])
        (topic,) = self.call(METADATA, request, 12).topics
        return not topic.error_code and all(p.leader_id >= 0 for p in topic.partitions)

    def _has_coordinator(self) -> bool:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        return not self.call(FIND_COORDINATOR, request, 4).coordinators[0].error_code

    def fill(self) -> Scene:
        """Append three records, each in a batch of its own."""
        for offset in range(RECORDS):
            batch = build_batch([Record(0, START_MS, None, b"%d" % offset)])
            self.until(lambda batch=batch: self._append(batch))  # type: ignore[misc]
        return self

    def _append(self, batch: bytes) -> bool:
        data = produce.PartitionProduceData(index=0, records=memoryview(batch))
        topic = produce.TopicProduceData(topic_id=self.topic_id, partition_data=[data])
        request = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = self.call(produce.PRODUCE, request, 13)
        return not answer.responses[0].partition_responses[0].error_code

    def join(self, member: str = "m") -> Scene:
        """Have a member join, and the group start with the first record."""
        self._start_early()
        epoch = 0

        def is_assigned() -> bool:
            nonlocal epoch
            answer = self.heartbeat(member_id=member, member_epoch=epoch)
            if answer.error_code:
                return False
            epoch = answer.member_epoch
            return bool(answer.assignment and answer.assignment.topic_partitions)

        self.until(is_assigned)
        return self

    def _start_early(self) -> None:
        name, value = "share.auto.offset.reset", "earliest"
        change = configs.AlterableConfig(name=name, config_operation=0, value=value)
        resource = configs.AlterConfigsResource(
            resource_type=_GROUP_RESOURCE, resource_name=self.group, configs=[change]
        )
        alter = configs.IncrementalAlterConfigsRequest(resources=[resource])
        assert not self.call(configs.INCREMENTAL_ALTER_CONFIGS, alter).responses[0].error_code
        wanted = DescribeConfigsResource(
            resource_type=_GROUP_RESOURCE, resource_name=self.group, configuration_keys=[name]
        )
        describe = DescribeConfigsRequest(resources=[wanted])
        self.until(
            lambda: [c.value for c in self.call(DESCRIBE_CONFIGS, describe).results[0].configs] == [value]
        )

    def hold(self) -> Scene:
        """Have the member `m` acquire all three records."""
        self.create().fill().join()
        held: set[str] = set()

        def has_all() -> bool:
            held.update(shown(self.fetch()).split()[1:])
            return len(held) >= RECORDS

        self.until(has_all)
        return self

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{self.group}: not prepared in time"
            time.sleep(_PAUSE_S)

    # -- requests of members

    def heartbeat(self, **changes: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id="m", member_epoch=0, subscribed_topic_names=[self.topic]
        )
        return self.call(SHARE_GROUP_HEARTBEAT, _changed(request, changes))

    def fetch(
        self,
        *acks: Ack,
        version: int = 2,
        topics: Sequence[tuple[bytes, Sequence[int]]] | None = None,
        line: Connection | None = None,
        **changes: Any,
    ) -> Any:
        """ShareFetch of the partition 0, or of `topics`, in the next epoch of the session."""
        batches = _batches(acks)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id="m",
            share_session_epoch=self.epoch,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(partition_index=index, acknowledgement_batches=batches)
                        for index in indexes
                    ],
                )
                for topic_id, indexes in ([(self.topic_id, [0])] if topics is None else topics)
            ],
        )
        answer = self.call(SHARE_FETCH, _changed(request, changes), version, line)
        self._advance(answer, request)
        return answer

    def acknowledge(
        self,
        *acks: Ack,
        version: int = 2,
        topics: Sequence[tuple[bytes, Sequence[int]]] | None = None,
        line: Connection | None = None,
        **changes: Any,
    ) -> Any:
        """ShareAcknowledge for the partition 0, or for `topics`, in the next epoch of the session."""
        batches = _batches(acks)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id="m",
            share_session_epoch=self.epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
                        for index in indexes
                    ],
                )
                for topic_id, indexes in ([(self.topic_id, [0])] if topics is None else topics)
            ],
        )
        answer = self.call(SHARE_ACKNOWLEDGE, _changed(request, changes), version, line)
        self._advance(answer, request)
        return answer

    def _advance(self, answer: Any, request: Any) -> None:
        if isinstance(answer, Struct) and not answer.error_code and request.member_id == "m":  # type: ignore[attr-defined]
            self.epoch = max(0, request.share_session_epoch + 1)


def _changed(request: Any, changes: dict[str, Any]) -> Any:
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def _batches(acks: Sequence[Ack]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=f, last_offset=last, acknowledge_types=t) for f, last, t in acks
    ]
