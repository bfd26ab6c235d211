"""Quotas of clients, and requests that exceed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.describe_client_quotas import EntityData
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of

#: how much too early a timer may go off
_TIMER_S = 0.01


def alter(admin: RawClient, client_id: str | None, key: str, value: float | None) -> None:
    entry = AlteredEntry(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    (result,) = admin.call(ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry])).entries
    assert result.error_code == ErrorCode.NONE, result.error_message


@contextmanager
def quota(admin: RawClient, client: RawClient, key: str, value: float) -> Iterator[None]:
    """A quota of one client."""
    client_id = client.client_id
    alter(admin, client_id, key, value)
    try:
        yield
    finally:
        alter(admin, client_id, key, None)


def produce(
    client: RawClient, topic: Topic, size: int, *, version: int = 7, acks: int = -1
) -> ProduceResponse | None:
    data = PartitionProduceData(index=0, records=memoryview(batch_of([b"x" * size])))
    wanted = TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[wanted])
    client.send(PRODUCE, version, request, answered=acks != 0)
    if acks == 0:
        return None
    response = client.receive()
    assert isinstance(response, ProduceResponse)
    return response


def assert_muted(client: RawClient, began: float, throttle_ms: int) -> None:
    """The next response comes after the throttle time. The throttled request was sent after `began`."""
    client.call(API_VERSIONS, 0, ApiVersionsRequest())
    assert monotonic() - began >= throttle_ms / 1000 - _TIMER_S
