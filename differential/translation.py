"""The values of one broker: translates labels of operations to its own values, and back.

Owned by one run on one broker. Every value that a broker chooses has one label per run; a value without a
label is reduced to the fact that there is one.
"""

from __future__ import annotations

from typing import Any

from differential.operations import NAME_MARK, Operation, epoch_label
from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER_SIZE, crc_matches
from penstock.records.record import iter_batches, seal
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.join_group import JoinGroupResponse
from penstock.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from penstock.wire.schema import Struct

__all__ = ["Translation"]


class Translation:
    """Labels and values of one run on one broker. `prefix` keeps the names of runs apart."""

    def __init__(self, prefix: str, port: int) -> None:
        self.prefix = prefix
        self.port = port
        self._values: dict[object, Any] = {}
        self._labels: dict[tuple[type, object], object] = {}
        #: partitions that members were last assigned (KIP-848)
        self._assigned: dict[str, list[TopicPartitions]] = {}
        #: active and standby tasks that members were last assigned (KIP-1071)
        self._tasks: dict[str, tuple[list[TaskIds], list[TaskIds]]] = {}

    def bind(self, label: int | str | bytes, value: Any) -> None:
        self._values[label] = value
        self._labels[type(value), value] = label

    # -- to the broker

    def value(self, label: Any) -> Any:
        return self._values.get(label, label)

    def name(self, text: str) -> str:
        return self.prefix + text[1:] if text.startswith(NAME_MARK) else text

    def request(self, operation: Operation) -> Struct:
        """The operation's request with the broker's values."""
        request = self._fill(operation.request)
        if operation.acknowledges and isinstance(request, ConsumerGroupHeartbeatRequest):
            request.topic_partitions = self._assigned.get(operation.member or "", [])
        if operation.acknowledges and isinstance(request, StreamsGroupHeartbeatRequest):
            active, standby = self._tasks.get(operation.member or "", ([], []))
            request.active_tasks, request.standby_tasks, request.warmup_tasks = active, standby, []
        return request

    def _fill(self, message: Struct) -> Struct:
        """A copy of the message with the broker's values."""
        values = {
            item.name: self._filled(item.kind, getattr(message, item.name)) for item in type(message).fields
        }
        return type(message)(**values)

    def _filled(self, kind: str, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._fill(value)
        if isinstance(value, list):
            return [self._filled(kind, element) for element in value]
        if kind == "records" and value is not None:
            return memoryview(self._batches(bytes(value)))
        if isinstance(value, str):
            known = self._values.get(value)
            return self.name(value) if known is None else known
        if isinstance(value, int | bytes) and not isinstance(value, bool):
            return self._values.get(value, value)
        return value

    def _batches(self, data: bytes) -> bytes:
        """Batches with the broker's producer ids; a wrong checksum stays wrong."""
        try:
            found = list(iter_batches(data))
        except CorruptMessage:
            return data
        if len(found) != 1:
            return data
        _, header = found[0]
        producer_id = self._values.get(header.producer_id, header.producer_id)
        epoch = self._values.get(header.producer_epoch, header.producer_epoch)
        if (producer_id, epoch) == (header.producer_id, header.producer_epoch):
            return data
        if not crc_matches(data, header):
            return data
        return seal(header._replace(producer_id=producer_id, producer_epoch=epoch), data[HEADER_SIZE:])

    # -- from the broker

    def label(self, value: Any, default: Any) -> Any:
        """The label of a value that the broker chose."""
        return self._labels.get((type(value), value), default)

    def plain_text(self, text: str) -> str:
        known = self._labels.get((str, text))
        return str(known) if known is not None else text.replace(self.prefix, NAME_MARK)

    def learn(self, operation: Operation, response: Struct) -> None:
        """Bind the labels of the operation to the values in the response."""
        self._learn_epoch(operation, response)
        self._learn_producer_epoch(operation, response)
        label = operation.binds
        if label is None:
            return
        for name in ("producer_id", "session_id", "member_id"):
            value = getattr(response, name, None)
            if value and value != -1 and (type(value), value) not in self._labels:
                self.bind(label, value)
                return

    def _learn_producer_epoch(self, operation: Operation, response: Struct) -> None:
        epoch = getattr(response, "producer_epoch", -1)
        if operation.binds_epoch is not None and not getattr(response, "error_code", 0) and epoch >= 0:
            self._values[operation.binds_epoch] = epoch

    def _learn_epoch(self, operation: Operation, response: Struct) -> None:
        if operation.member is None:
            return
        if isinstance(response, JoinGroupResponse) and not response.error_code:
            self._values[epoch_label(operation.member)] = response.generation_id
        elif isinstance(response, ConsumerGroupHeartbeatResponse) and not response.error_code:
            self._values[epoch_label(operation.member)] = response.member_epoch
            if response.assignment is not None:
                self._assigned[operation.member] = response.assignment.topic_partitions
        elif isinstance(response, StreamsGroupHeartbeatResponse) and not response.error_code:
            self._values[epoch_label(operation.member)] = response.member_epoch
            if response.active_tasks is not None and response.standby_tasks is not None:
                self._tasks[operation.member] = response.active_tasks, response.standby_tasks
