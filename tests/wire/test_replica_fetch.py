"""Fetch between brokers: what is written by hand is what the tables write, and is read as they read it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import (
    FETCH,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from penstock.wire.messages import encode_response
from penstock.wire.replica_fetch import (
    REPLICA_FETCH,
    FetchedPartition,
    ReplicaFetchResponse,
    read_response,
    write_response,
)

NEWEST = FETCH.max_version
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.sampled_from([TopicId(bytes([letter]) * 16) for letter in b"abc"])
records = st.sampled_from([b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20_000])
reports = st.tuples(topic_ids, int32, int64, int64, records)


TOPIC_ID = TopicId(b"t" * 16)


def joined(parts: list[object]) -> bytes:
    return b"".join(map(bytes, parts))  # type: ignore[arg-type]


@given(int32, int32, st.lists(reports, max_size=5))
def test_a_response_equals_that_of_the_tables(
    correlation_id: int, session_id: int, named: list[FetchedPartition]
) -> None:
    response = FetchResponse(session_id=session_id)
    for topic_id, index, high_watermark, log_start_offset, batches in named:
        if not response.responses or response.responses[-1].topic_id != topic_id:
            response.responses.append(FetchableTopicResponse(topic_id=topic_id))
        response.responses[-1].partitions.append(
            PartitionData(
                partition_index=index,
                high_watermark=high_watermark,
                log_start_offset=log_start_offset,
                records=batches,
            )
        )

    written = joined([*write_response(correlation_id, (session_id, named))])

    assert written == joined([*encode_response(FETCH, NEWEST, correlation_id, response)])
    assert plain(read_response(memoryview(written), 9)) == (session_id, named)


def plain(answer: ReplicaFetchResponse | None) -> tuple[int, list[FetchedPartition]] | None:
    """With the records as bytes, not as views."""
    return None if answer is None else (answer[0], [(*head, bytes(r)) for *head, r in answer[1]])  # type: ignore


def changed(message: bytes, random: Random) -> bytes:
    """One byte of a message is another one."""
    at = random.randrange(len(message))
    return message[:at] + bytes([random.randrange(256)]) + message[at + 1 :]


@pytest.mark.parametrize("seed", range(300))
def test_unusual_responses_are_left_to_the_tables(seed: int) -> None:
    """Whatever a byte of a usual message becomes: what is read here is what the tables read."""
    random = Random(seed)
    reported = [(TOPIC_ID, index, 5, 0, b"records") for index in range(1 + seed % 3)]
    frame = changed(joined([*write_response(1, (7, reported))])[9:], random)
    answer = read_response(memoryview(frame), 0)
    if answer is not None:
        response = FETCH.response_decoder(NEWEST)(memoryview(frame), 0)
        assert (response.error_code, response.node_endpoints) == (0, [])
        assert plain(answer) == (
            response.session_id,
            [
                (t.topic_id, p.partition_index, p.high_watermark, p.log_start_offset, p.records)
                for t in response.responses
                for p in t.partitions
                if not p.error_code and p.diverging_epoch is None and not p.aborted_transactions
            ],
        )


def unusual_answers() -> list[PartitionData]:
    return [
        PartitionData(error_code=6, records=b""),
        PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2), records=b""),
        PartitionData(aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=2)], records=b""),
        PartitionData(records=None),
    ]


@pytest.mark.parametrize("data", unusual_answers())
@pytest.mark.parametrize("others", [0, 1])
def test_an_answer_with_trouble_is_none_of_these(data: PartitionData, others: int) -> None:
    usual = [PartitionData(partition_index=index, records=b"r") for index in range(others)]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[*usual, data])])
    frame = joined([*encode_response(FETCH, NEWEST, 1, response)])
    assert read_response(memoryview(frame), 9) is None
    assert REPLICA_FETCH.response_decoder(NEWEST)(memoryview(frame), 9) == response


def test_a_refused_session_is_none_of_these() -> None:
    frame = joined([*encode_response(FETCH, NEWEST, 1, FetchResponse(error_code=70))])
    assert read_response(memoryview(frame), 9) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_truncated_response_is_no_message(count: int) -> None:
    answer = joined(
        [*write_response(1, (7, [(TopicId(b"t" * 16), i, 5, 0, b"records") for i in range(count)]))]
    )
    for end in range(9, len(answer)):
        assert read_response(memoryview(answer[:end]), 9) is None
        with pytest.raises(ProtocolError):
            REPLICA_FETCH.response_decoder(NEWEST)(memoryview(answer[:end]), 9)
