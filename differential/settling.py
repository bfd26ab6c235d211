"""Waits until a broker has applied a change that it has answered: Kafka does so a moment later.

Without this, the next operation would find a topic without leaders, or the previous config.
"""

from __future__ import annotations

import time
from typing import Any, Final

from differential.connection import Connection
from differential.operations import Operation
from differential.translation import Translation
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
)
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsResponse
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from penstock.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatResponse,
    Topology,
)
from penstock.wire.schema import Struct

__all__ = ["settle"]

_PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 0.02
#: from the moment that the metadata of a broker shows a change until its logs follow it
_APPLY_S: Final = 0.15
#: until Kafka's group coordinator, which applies metadata in a thread of its own, knows of new topics
_COORDINATORS_S: Final = 0.5
_METADATA_VERSION: Final = 12
#: the status of a streams group whose coordinator creates topics
_MISSING_INTERNAL_TOPICS: Final = 3
_LIST_OFFSETS_VERSION: Final = 7


def settle(
    connection: Connection,
    translation: Translation,
    operation: Operation,
    response: Struct,
) -> None:
    """Wait until the operation's change is visible, and bind the ids of topics that it created."""
    api, request = operation.api, operation.request
    if api is CREATE_TOPICS:
        for name, label in operation.creates.items():
            if _created(response, translation.name(name)):
                translation.bind(label, _wait_for_topic(connection, translation.name(name), 1))
    elif api is CREATE_PARTITIONS and isinstance(request, CreatePartitionsRequest):
        for topic in request.topics:
            if not _errors(response):
                _wait_for_topic(connection, translation.name(topic.name), topic.count)
    elif api is DELETE_TOPICS and isinstance(response, DeleteTopicsResponse):
        for deleted in response.responses:
            if deleted.error_code == ErrorCode.NONE and deleted.name:
                _wait_for_absence(connection, deleted.name)
    elif isinstance(response, StreamsGroupHeartbeatResponse):
        if any(status.status_code == _MISSING_INTERNAL_TOPICS for status in response.status or ()):
            _wait_for_internal_topics(connection, translation, getattr(request, "topology", None))
    elif api in (END_TXN, INIT_PRODUCER_ID):
        transactional_id = getattr(request, "transactional_id", None)
        if transactional_id:
            _wait_for_markers(connection, translation.name(transactional_id))
    elif api in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        time.sleep(_APPLY_S)


def _wait_for_markers(connection: Connection, transactional_id: str) -> None:
    """Wait until the markers of a decided transaction are written."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        (found,) = _call(connection, DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        if not found.transaction_state.startswith("Prepare"):
            return
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"the transaction of {transactional_id} does not end")


def _created(response: Any, name: str) -> bool:
    return any(topic.name == name and topic.error_code == ErrorCode.NONE for topic in response.topics)


def _errors(response: Any) -> list[int]:
    found = getattr(response, "results", None) or getattr(response, "responses", [])
    return [result.error_code for result in found if result.error_code]


def _call(connection: Connection, api: Api[Any, Any], version: int, request: Struct) -> Any:
    return connection.call(Operation("settle", api, version, request), request)


def _metadata(connection: Connection, name: str) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return _call(connection, METADATA, _METADATA_VERSION, request).topics[0]  # type: ignore[no-any-return]


def _wait_for_topic(connection: Connection, name: str, partitions: int) -> bytes:
    """Returns the id of a topic once all of its partitions can be read."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        topic = _metadata(connection, name)
        if not topic.error_code and len(topic.partitions) >= partitions:
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(partition_index=p.partition_index, timestamp=-1)
                            for p in topic.partitions
                        ],
                    )
                ],
            )
            answer = _call(connection, LIST_OFFSETS, _LIST_OFFSETS_VERSION, request)
            if not any(p.error_code for p in answer.topics[0].partitions):
                return topic.topic_id
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"topic {name} has no leaders")


def _wait_for_absence(connection: Connection, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if _metadata(connection, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            time.sleep(_APPLY_S)
            return
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"topic {name} is still there")


def _wait_for_internal_topics(
    connection: Connection, translation: Translation, topology: Topology | None
) -> None:
    """Wait until the coordinator of a streams group has created the topics of the member's topology."""
    for subtopology in () if topology is None else topology.subtopologies:
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            _wait_for_topic(connection, translation.name(topic.name), 1)
    time.sleep(_COORDINATORS_S)
