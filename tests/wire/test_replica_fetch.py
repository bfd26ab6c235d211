"""Fetch between brokers: what is written by hand is what the tables write, and is read as they read it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.model.ids import METADATA_TOPIC_ID, TopicId
from penstock.wire.apis.fetch import (
    FETCH,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from penstock.wire.messages import encode_response
from penstock.wire.replica_fetch import (
    FEW,
    REPLICA_FETCH,
    Answer,
    ReplicaAsk,
    Told,
    Wanted,
    ask_of,
    read_answer,
    read_ask,
    write_answer,
    write_ask,
)

NEWEST = FETCH.max_version
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.sampled_from([TopicId(bytes([letter]) * 16) for letter in b"abc"])
wishes = st.tuples(topic_ids, int32, int32, int64, int32, int64, int32)
records = st.sampled_from([b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20_000])
tellings = st.tuples(topic_ids, int32, int64, int64, records)
numbers = (*(int32,) * 6, int64)


TOPIC_ID = TopicId(b"t" * 16)


def ask(count: int, topic_id: TopicId = TOPIC_ID) -> ReplicaAsk:
    wanted = [(topic_id, index, 0, 5, 0, 0, 100) for index in range(count)]
    return ReplicaAsk(500, 1, 1000, 7, 3, 2, 9, wanted)


def joined(parts: list[object]) -> bytes:
    return b"".join(map(bytes, parts))  # type: ignore[arg-type]


def table(ask: ReplicaAsk) -> FetchRequest:
    """The request as a table has it, made without the code under test."""
    request = FetchRequest(
        max_wait_ms=ask.max_wait_ms,
        min_bytes=ask.min_bytes,
        max_bytes=ask.max_bytes,
        session_id=ask.session_id,
        session_epoch=ask.session_epoch,
        replica_state=ReplicaState(replica_id=ask.replica, replica_epoch=ask.broker_epoch),
    )
    for topic_id, *position in ask.wanted:
        if not request.topics or request.topics[-1].topic_id != topic_id:
            request.topics.append(FetchTopic(topic_id=topic_id))
        partition = FetchTopic.fields[2].of()
        names = ("partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch")
        for name, value in zip((*names, "log_start_offset", "partition_max_bytes"), position, strict=True):
            setattr(partition, name, value)
        request.topics[-1].partitions.append(partition)
    return request


@given(st.tuples(*numbers), st.lists(wishes, max_size=5))
def test_a_request_is_what_the_tables_write_and_read(head: tuple[int, ...], named: list[Wanted]) -> None:
    ask = ReplicaAsk(*head, named)  # type: ignore[call-arg, arg-type]

    body = write_ask(ask)

    assert body == joined([*FETCH.request_encoder(NEWEST)(table(ask))])
    read = read_ask(memoryview(b"header" + body), 6)
    assert read is not None
    assert (read._replace(wanted=list(read.wanted)), read.is_usual) == (ask, True)
    decoded = FETCH.request_decoder(NEWEST)(memoryview(body), 0)
    assert ask_of(decoded) == ask._replace(is_usual=False, forgotten=[])


@given(int32, int32, st.lists(tellings, max_size=5))
def test_an_answer_is_what_the_tables_write_and_read(
    correlation_id: int, session_id: int, named: list[Told]
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

    written = joined([*write_answer(correlation_id, (session_id, named))])

    assert written == joined([*encode_response(FETCH, NEWEST, correlation_id, response)])
    assert plain(read_answer(memoryview(written), 9)) == (session_id, named)


def plain(answer: Answer | None) -> tuple[int, list[Told]] | None:
    """With the records as bytes, not as views."""
    return None if answer is None else (answer[0], [(*head, bytes(r)) for *head, r in answer[1]])  # type: ignore


def changed(message: bytes, random: Random) -> bytes:
    """One byte of a message is another one."""
    at = random.randrange(len(message))
    return message[:at] + bytes([random.randrange(256)]) + message[at + 1 :]


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_unusual_is_left_to_the_tables(seed: int) -> None:
    """Whatever a byte of a usual message becomes: what is read here is what the tables read."""
    random = Random(seed)
    body = changed(write_ask(ask(1 + seed % 3)), random)
    read = read_ask(memoryview(body), 0)
    if read is not None:
        request = FETCH.request_decoder(NEWEST)(memoryview(body), 0)
        assert (request.cluster_id, request.rack_id) == (None, "")
        usual = ask_of(request)._replace(is_usual=True, forgotten=())
        assert read._replace(wanted=list(read.wanted)) == usual

    told = [(TOPIC_ID, index, 5, 0, b"records") for index in range(1 + seed % 3)]
    frame = changed(joined([*write_answer(1, (7, told))])[9:], random)
    answer = read_answer(memoryview(frame), 0)
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
    assert read_answer(memoryview(frame), 9) is None
    assert REPLICA_FETCH.response_decoder(NEWEST)(memoryview(frame), 9) == response


def test_a_refused_session_is_none_of_these() -> None:
    frame = joined([*encode_response(FETCH, NEWEST, 1, FetchResponse(error_code=70))])
    assert read_answer(memoryview(frame), 9) is None


@pytest.mark.parametrize("count", [1, 3])
def test_the_metadata_log_is_left_to_the_tables(count: int) -> None:
    """Its replicas are the quorum's, which has rules of its own."""
    body = memoryview(write_ask(ask(count, METADATA_TOPIC_ID)))
    assert read_ask(body, 0) is None
    assert isinstance(REPLICA_FETCH.request_decoder(NEWEST)(body, 0), FetchRequest)


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 300])
@pytest.mark.parametrize("version", [13, NEWEST])
def test_any_number_of_partitions_in_any_version(count: int, version: int) -> None:
    asked = ask(count)
    body = joined([*REPLICA_FETCH.request_encoder(version)(asked)])
    decoded = REPLICA_FETCH.request_decoder(version)(memoryview(body), 0)
    assert isinstance(decoded, ReplicaAsk) == (version == NEWEST and count <= FEW)
    read = decoded if isinstance(decoded, ReplicaAsk) else ask_of(decoded)
    broker_epoch = 9 if version == NEWEST else -1
    assert list(read.wanted) == asked.wanted
    assert (read.session_id, read.replica, read.broker_epoch) == (7, 2, broker_epoch)


def test_what_is_forgotten_is_told() -> None:
    asked = ask(1)._replace(forgotten=[(TopicId(b"u" * 16), 1), (TopicId(b"u" * 16), 2)])
    body = joined([*REPLICA_FETCH.request_encoder(NEWEST)(asked)])
    decoded = REPLICA_FETCH.request_decoder(NEWEST)(memoryview(body), 0)
    assert isinstance(decoded, FetchRequest)
    assert ask_of(decoded).forgotten == asked.forgotten


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_cut_is_no_message(count: int) -> None:
    body = write_ask(ask(count))
    answer = joined(
        [*write_answer(1, (7, [(TopicId(b"t" * 16), i, 5, 0, b"records") for i in range(count)]))]
    )
    for end in range(len(body)):
        assert read_ask(memoryview(body[:end]), 0) is None
        with pytest.raises(ProtocolError):
            REPLICA_FETCH.request_decoder(NEWEST)(memoryview(body[:end]), 0)
    for end in range(9, len(answer)):
        assert read_answer(memoryview(answer[:end]), 9) is None
        with pytest.raises(ProtocolError):
            REPLICA_FETCH.response_decoder(NEWEST)(memoryview(answer[:end]), 9)
