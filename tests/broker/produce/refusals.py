"""Produce requests that are refused."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.records.codecs import Codec
from penstock.records.record import Record
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    produce,
)


def errors_of(
    client: RawClient, topic: Topic, records: Sequence[Record], version: int, codec: Codec = Codec.NONE
) -> tuple[int, list[int]]:
    answer = produce(client, topic, batch_of(records, codec), version=version)
    assert answer.base_offset == (-1 if answer.error_code else 0)
    if version >= 8 and answer.error_code:
        assert answer.error_message
        assert all(error.batch_index_error_message for error in answer.record_errors)
    return answer.error_code, [error.batch_index for error in answer.record_errors]
