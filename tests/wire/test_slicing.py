"""Codecs in slices give what plain codecs give, and bounded codecs stop before they loop."""

from __future__ import annotations

from functools import partial
from mmap import mmap
from random import Random
from typing import Any, cast

import pytest

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer
from penstock.wire import messages
from penstock.wire.apis.create_topics import CREATE_TOPICS
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.describe_producers import DESCRIBE_PRODUCERS, DescribeProducersRequest, TopicRequest
from penstock.wire.apis.metadata import METADATA, MetadataResponse, MetadataResponseTopic
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.compiler import bounded_decoder, bounded_encoder, sliced_decoder, sliced_encoder
from penstock.wire.messages import encode_response, sliced_response_writer
from penstock.wire.schema import Struct
from penstock.wire.slicing import FIXED_STEP, SMALL_BYTES, STEP, TAGS_MAX, LargeMessage, exhausted
from penstock.wire.varint import encode_uvarint
from tests.wire.cases import CASES, Case
from tests.wire.instances import instance

_MANY = 1 << 20


def _form(case: Case) -> tuple[type[Struct], int, bool]:
    return case.message, case.version, case.version >= case.api.flexible_from


def _joined(parts: Any) -> bytes:
    return b"".join(cast("list[Buffer]", parts))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sliced_codecs_give_the_bytes_of_plain_ones(case: Case) -> None:
    random = Random(f"slices {case}")
    for _ in range(5):
        message = instance(case.message, case.version, random)
        data = case.encode(message)
        assert exhausted(sliced_decoder(*_form(case))(data, 0)) == message
        assert _joined(exhausted(sliced_encoder(*_form(case))(message))) == data
        assert _joined(bounded_encoder(*_form(case), _MANY)(message)) == data
        if len(data) <= SMALL_BYTES:
            assert bounded_decoder(*_form(case), _MANY)(memoryview(data), 0) == message


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cut_messages_are_refused_in_slices_as_at_once(case: Case) -> None:
    random = Random(f"cut {case}")
    data = case.encode(instance(case.message, case.version, random))
    for _ in range(5):
        cut = data[: random.randrange(len(data))] if data else b""
        in_slices = _outcome(partial(exhausted, sliced_decoder(*_form(case))(cut, 0)))
        assert in_slices == _outcome(partial(case.decode, cut))


def _outcome(decode: Any) -> object:
    try:
        return decode()
    except ProtocolError:
        return ProtocolError


def test_a_large_request_is_decoded_in_steps() -> None:
    message = DeleteGroupsRequest(groups_names=[f"group-{i}" for i in range(10 * STEP)])
    data = _joined(DELETE_GROUPS.request_encoder(2)(message))
    steps = DELETE_GROUPS.sliced_request_decoder(2)(data, 0)
    assert sum(1 for _ in steps) == 1 + 10
    assert exhausted(DELETE_GROUPS.sliced_request_decoder(2)(data, 0)) == message


def test_a_sliced_decoder_shows_the_fields_decoded_so_far() -> None:
    """Also after an error: a message that is damaged at its end may have a million elements before that."""
    names = [f"group-{i}" for i in range(10 * STEP)]
    data = _joined(DELETE_GROUPS.request_encoder(2)(DeleteGroupsRequest(groups_names=names)))
    steps = DELETE_GROUPS.sliced_request_decoder(2)(data[:-3], 0)
    message = next(steps)
    assert isinstance(message, DeleteGroupsRequest)
    next(steps)
    assert message.groups_names == names[: STEP - 1]
    with pytest.raises(ProtocolError):
        exhausted(steps)
    assert len(message.groups_names) >= len(names) - 1


_NEWEST = [
    case for case in CASES if case.message is case.api.request and case.version == case.api.max_version
]


@pytest.mark.parametrize("case", _NEWEST, ids=str)
def test_a_buffer_that_is_not_copied_is_decoded_alike(case: Case) -> None:
    message = instance(case.message, case.version, Random(f"kept {case}"))
    data = bytes(7) + case.encode(message)
    kept = mmap(-1, len(data))
    kept[:] = data
    assert exhausted(sliced_decoder(*_form(case), copies=False)(memoryview(kept), 7)) == message


def test_long_lists_of_numbers_are_decoded_and_encoded_in_steps() -> None:
    topic = TopicRequest(name="t", partition_indexes=list(range(3 * FIXED_STEP)))
    message = DescribeProducersRequest(topics=[topic])
    encode = sliced_encoder(DescribeProducersRequest, 0, True)
    assert sum(1 for _ in encode(message)) == 2
    data = _joined(exhausted(encode(message)))
    assert data == _joined(DESCRIBE_PRODUCERS.request_encoder(0)(message))
    steps = DESCRIBE_PRODUCERS.sliced_request_decoder(0)(data, 0)
    assert sum(1 for _ in steps) == 1 + 2
    assert exhausted(DESCRIBE_PRODUCERS.sliced_request_decoder(0)(data, 0)) == message


def test_elements_of_nested_lists_count_together() -> None:
    topics = [TopicRequest(name="t", partition_indexes=list(range(30))) for _ in range(20)]
    data = memoryview(_joined(DESCRIBE_PRODUCERS.request_encoder(0)(DescribeProducersRequest(topics=topics))))
    elements = 20 * 31
    assert DESCRIBE_PRODUCERS.bounded_request_decoder(0, elements)(data, 0).topics == topics
    with pytest.raises(LargeMessage):
        DESCRIBE_PRODUCERS.bounded_request_decoder(0, elements - 1)(data, 0)


def test_a_message_of_many_bytes_is_large() -> None:
    """Its strings, and tagged fields that are skipped, cost time as well."""
    names = ["x" * 30_000] * 3
    data = memoryview(_joined(DELETE_GROUPS.request_encoder(2)(DeleteGroupsRequest(groups_names=names))))
    with pytest.raises(LargeMessage):
        DELETE_GROUPS.bounded_request_decoder(2, _MANY)(data, 0)


def test_the_records_of_a_produce_request_do_not_make_it_large() -> None:
    partitions = [PartitionProduceData(index=0, records=memoryview(b"r" * (2 * SMALL_BYTES)))]
    message = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    data = memoryview(_joined(PRODUCE.request_encoder(9)(message)))
    assert PRODUCE.bounded_request_decoder(9, 10)(data, 0) == message


def test_a_count_that_cannot_be_true_is_no_large_message() -> None:
    with pytest.raises(ProtocolError, match="too many"):
        CREATE_TOPICS.bounded_request_decoder(7, 10)(memoryview(encode_uvarint(1 << 30) + bytes(100)), 0)


def test_tagged_fields_of_a_structure_are_bounded() -> None:
    tags = b"".join(encode_uvarint(1000 + i) + b"\0" for i in range(TAGS_MAX + 1))
    body = encode_uvarint(1) + encode_uvarint(TAGS_MAX + 1) + tags
    with pytest.raises(ProtocolError, match="tagged fields"):
        DELETE_GROUPS.request_decoder(2)(memoryview(body), 0)


def test_a_large_response_is_encoded_in_parts() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name=f"t{i}") for i in range(5 * STEP)])
    with pytest.raises(LargeMessage):
        METADATA.bounded_response_encoder(12, 5 * STEP - 1)(response)
    assert len(exhausted(METADATA.sliced_response_encoder(12)(response))) > 3
    parts = exhausted(sliced_response_writer(METADATA, 12)(77, response))
    assert _joined(parts) == _joined(encode_response(METADATA, 12, 77, response))


def test_a_large_response_is_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was joined at once, half a millisecond for each megabyte."""
    monkeypatch.setattr(messages, "_PIECE_BYTES", 4096)
    response = MetadataResponse(topics=[MetadataResponseTopic(name=f"t{i}") for i in range(50 * STEP)])
    steps = sliced_response_writer(METADATA, 12)(77, response)
    parts = exhausted(steps)
    assert _joined(parts) == _joined(encode_response(METADATA, 12, 77, response))
    assert len(parts) > 8
    assert all(4096 <= len(part) < 8192 for part in parts[:-1])
