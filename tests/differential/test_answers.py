"""From two answers to their differences: labels, normal form, comparison, allowed differences."""

from __future__ import annotations

import pytest

from differential.allowed import ALLOWED, Allowed, is_allowed
from differential.compare import Difference, differences
from differential.connection import cause_of, mangled
from differential.normalise import Closed, Plain, normalise
from differential.operations import Operation, epoch_label, member_label, producer_label, topic_id_label
from differential.shrink import shrink
from differential.translation import Translation
from penstock.records.record import Record, build_batch, iter_batches
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from penstock.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages import encode_request

PRODUCER = producer_label(0)
MEMBER = member_label(1)


def translation(prefix: str = "run1-", producer_id: int = 17) -> Translation:
    made = Translation(prefix, 9092)
    initialised = Operation("idempotence", INIT_PRODUCER_ID, 5, InitProducerIdRequest(), binds=PRODUCER)
    made.learn(initialised, InitProducerIdResponse(producer_id=producer_id))
    return made


def batch(producer_id: int) -> bytes:
    return build_batch([Record(0, 5, b"k", b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0)


def fetched(producer_id: int, topics: tuple[str, ...] = ("run1-a", "run1-b")) -> FetchResponse:
    return FetchResponse(
        session_id=4,
        responses=[
            FetchableTopicResponse(
                topic=name, partitions=[PartitionData(high_watermark=1, records=batch(producer_id))]
            )
            for name in topics
        ],
    )


# -- labels


def test_requests_have_the_brokers_values() -> None:
    known, label = translation(), topic_id_label("~a", 1)
    known.bind(label, b"0123456789abcdef")
    data = PartitionProduceData(records=memoryview(batch(PRODUCER)))
    request = ProduceRequest(topic_data=[TopicProduceData(name="~a", topic_id=label, partition_data=[data])])

    filled = known.request(Operation("produce", PRODUCE, 13, request))

    assert isinstance(filled, ProduceRequest)
    (topic,) = filled.topic_data
    assert (topic.name, topic.topic_id) == ("run1-a", b"0123456789abcdef")
    assert topic.partition_data[0].records is not None
    ((_, header),) = iter_batches(topic.partition_data[0].records)
    assert header.producer_id == 17
    assert request.topic_data[0].name == "~a"


def test_members_send_the_epoch_and_the_partitions_that_they_were_given() -> None:
    known = translation()
    beat = Operation(
        "consumer",
        CONSUMER_GROUP_HEARTBEAT,
        1,
        ConsumerGroupHeartbeatRequest(member_id=MEMBER),
        member=MEMBER,
    )
    given = [TopicPartitions(topic_id=bytes(16), partitions=[2])]
    assigned = Assignment(topic_partitions=given)
    known.learn(beat, ConsumerGroupHeartbeatResponse(member_epoch=4, assignment=assigned))

    acknowledgement = ConsumerGroupHeartbeatRequest(member_id=MEMBER, member_epoch=epoch_label(MEMBER))
    sent = known.request(
        Operation("consumer", CONSUMER_GROUP_HEARTBEAT, 1, acknowledgement, member=MEMBER, acknowledges=True)
    )

    assert isinstance(sent, ConsumerGroupHeartbeatRequest)
    assert (sent.member_id, sent.member_epoch, sent.topic_partitions) == ("run1-member-1", 4, given)


# -- normal form and comparison


def plain(producer_id: int, prefix: str, topics: tuple[str, ...] = ("a", "b")) -> Plain:
    names = tuple(prefix + name for name in topics)
    return normalise(fetched(producer_id, names), translation(prefix, producer_id))


def test_values_that_brokers_choose_do_not_differ() -> None:
    assert differences(plain(17, "run1-"), plain(99, "other-")) == []


def test_records_do_and_the_order_of_topics_does_not() -> None:
    ours = plain(17, "x-")
    assert differences(ours, plain(17, "x-", ("b", "a"))) == []
    ours["responses"][1]["partitions"][0]["records"][0]["records"] = []
    (found, *_) = differences(ours, plain(17, "x-"))
    assert found.path == "responses[~b].partitions[0].records[0].records[0:]"


def test_lists_are_compared_by_name() -> None:
    def created(*names: str) -> Plain:
        topics = [CreatableTopicResult(name=name, error_message=f"of {names}") for name in names]
        return normalise(CreateTopicsResponse(topics=topics), translation())

    assert differences(created("a", "b"), created("b", "a")) == []
    (found,) = differences(created("a", "b"), created("b"))
    assert (found.path, found.theirs) == ("topics[a]", "absent")


@pytest.mark.parametrize("ours, theirs", [(1, 2), ("closed the connection", {"error_code": 0}), (None, [])])
def test_unlike_answers_differ(ours: Plain, theirs: Plain) -> None:
    assert differences(ours, theirs) == [Difference("", ours, theirs)]


# -- allowed differences


def test_an_entry_covers_its_field_only() -> None:
    operation = Operation("consumer", HEARTBEAT, 4, HeartbeatRequest())
    entry = Allowed("one", "Heartbeat", "topics.error_code", "a reason", lambda _, d: d.ours == 1)
    assert is_allowed(operation, Difference("topics[x.y].error_code", 1, 2), [entry]) is entry
    assert is_allowed(operation, Difference("topics[0].error_code", 3, 2), [entry]) is None
    assert is_allowed(operation, Difference("topics[0].name", 1, 2), [entry]) is None


def test_every_entry_has_a_reason() -> None:
    assert all(entry.reason.endswith(".") for entry in ALLOWED)
    assert len({entry.id for entry in ALLOWED}) == len(ALLOWED)


def malformed(request: HeartbeatRequest, old: bytes, new: bytes) -> str:
    """The cause for which Penstock refuses a request in which `old` is replaced by `new`."""
    operation = Operation("consumer", HEARTBEAT, 3, request, mangle=1)
    frame = b"".join(bytes(part) for part in encode_request(HEARTBEAT, 3, 1, "c", request))  # type: ignore[arg-type]
    assert old in frame
    return cause_of(operation, frame.replace(old, new), 15)


@pytest.mark.parametrize(
    ("old", "new", "is_covered"),
    [
        (b"group", b"gr\xffup", True),
        (b"\x00\x05group", b"\xff\xfb", True),
        (b"member", b"membe", False),
        (b"\x00\x05group", b"\x70\x05group", False),
    ],
    ids=["not UTF-8", "negative length", "cut off", "length beyond the end"],
)
def test_only_two_causes_of_malformed_requests_are_allowed(old: bytes, new: bytes, is_covered: bool) -> None:
    """Penstock may refuse other requests that Kafka answers only by mistake."""
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id="member", group_instance_id="x")
    cause = malformed(request, old, new)
    assert cause
    operation = Operation("consumer", HEARTBEAT, 3, HeartbeatRequest(), mangle=1)
    closed = Difference("", Closed(cause), {"error_code": 0})
    assert (is_allowed(operation, closed) is not None) == is_covered
    assert Closed(cause) == "closed the connection"


@pytest.mark.parametrize(
    ("ours", "theirs", "is_covered"),
    [("why", None, True), (None, "NONE", True), (None, "why", False), ("why", "NONE", False)],
)
def test_error_messages_may_differ_in_two_ways(
    ours: str | None, theirs: str | None, is_covered: bool
) -> None:
    def created(message: str | None) -> Plain:
        topic = CreatableTopicResult(name="a", error_message=message)
        return normalise(CreateTopicsResponse(topics=[topic]), translation())

    (found,) = differences(created(ours), created(theirs))
    operation = Operation("topics", HEARTBEAT, 3, HeartbeatRequest())
    assert (is_allowed(operation, found) is not None) == is_covered


# -- frames and prefixes


def test_a_mangled_frame_is_still_a_frame() -> None:
    frame = (26).to_bytes(4, "big") + bytes(range(26))
    changed = [mangled(frame, 14, seed) for seed in range(50)]
    assert all(int.from_bytes(each[:4], "big") == len(each) - 4 for each in changed)
    assert all(each[4:14] == frame[4:14] for each in changed)
    assert len({bytes(each) for each in changed}) > 10


def test_shrinking_leaves_the_items_that_fail() -> None:
    def fails(items: list[int]) -> bool:
        return {3, 7} <= set(items) and items[-1] == 20

    assert shrink(range(21), fails, 200) == [3, 7, 20]
    assert shrink([20], lambda _: True, 10) == [20]
