"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.codecs import Codec
from penstock.records.record import open_batch, seal
from penstock.storage import lookup
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.conftest import penstock_only, record_threads
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Topic,
    append,
    batch_of,
    edge_versions,
    every_version,
    list_offset,
    now_ms,
    produce,
    record,
)

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
ALL = pytest.mark.parametrize("version", every_version(LIST_OFFSETS))


@ALL
def test_latest_and_earliest(client: RawClient, topic: Topic, version: int) -> None:
    append(client, topic, b"0", b"1", b"2")

    latest = list_offset(client, topic, LATEST, version=version)
    earliest = list_offset(client, topic, EARLIEST, version=version)

    assert (latest.error_code, latest.offset, latest.timestamp) == (ErrorCode.NONE, 3, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (ErrorCode.NONE, 0, -1)
    if version >= 4:
        assert latest.leader_epoch == earliest.leader_epoch == 0


@ALL
def test_an_empty_log_has_a_latest_and_an_earliest_offset(
    client: RawClient, topic: Topic, version: int
) -> None:
    latest = list_offset(client, topic, LATEST, version=version)
    earliest = list_offset(client, topic, EARLIEST, version=version)

    assert (latest.error_code, latest.offset) == (ErrorCode.NONE, 0)
    assert (earliest.error_code, earliest.offset) == (ErrorCode.NONE, 0)
    if version >= 4:
        assert latest.leader_epoch == earliest.leader_epoch == 0


@pytest.mark.parametrize("version", range(2, 12))
def test_latest_for_readers_of_committed_records_is_the_last_stable_offset(
    client: RawClient, topic: Topic, version: int
) -> None:
    append(client, topic, b"0")

    assert list_offset(client, topic, LATEST, version=version, committed=True).offset == 1


@ALL
def test_a_timestamp_finds_the_first_record_at_or_after_it(
    client: RawClient, topic: Topic, version: int
) -> None:
    start = now_ms() - 100_000
    produce(client, topic, batch_of([record(b"%d" % i, timestamp=start + 10 * i) for i in range(5)]))
    produce(client, topic, batch_of([record(b"%d" % i, timestamp=start + 10 * i) for i in range(5, 10)]))

    exact = list_offset(client, topic, start + 30, version=version)
    between = list_offset(client, topic, start + 61, version=version)
    first = list_offset(client, topic, 0, version=version)

    assert (exact.offset, exact.timestamp) == (3, start + 30)
    assert (between.offset, between.timestamp) == (7, start + 70)
    assert (first.offset, first.timestamp) == (0, start)
    if version >= 4:
        assert exact.leader_epoch == between.leader_epoch == first.leader_epoch == 0


@ALL
def test_a_timestamp_after_every_record_finds_nothing(client: RawClient, topic: Topic, version: int) -> None:
    append(client, topic, b"0")

    listed = list_offset(client, topic, now_ms() + 100_000, version=version)

    assert (listed.error_code, listed.offset, listed.timestamp) == (ErrorCode.NONE, -1, -1)
    assert listed.leader_epoch == -1


@ALL
def test_a_timestamp_in_an_empty_log_finds_nothing(client: RawClient, topic: Topic, version: int) -> None:
    listed = list_offset(client, topic, 0, version=version)

    assert (listed.error_code, listed.offset, listed.timestamp) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_timestamp_finds_its_record_inside_a_compressed_batch(
    client: RawClient, topic: Topic, codec: Codec
) -> None:
    start = now_ms() - 1000
    stamped = [record(b"x", timestamp=start + i) for i in range(20)]
    produce(client, topic, batch_of(stamped, codec))

    assert list_offset(client, topic, start + 13).offset == 13
    assert list_offset(client, topic, MAX_TIMESTAMP).offset == 19


@penstock_only
@pytest.mark.parametrize(
    ("count", "codec", "long"), [(10, Codec.NONE, False), (1001, Codec.NONE, True), (10, Codec.ZSTD, True)]
)
def test_long_batches_are_not_walked_on_the_event_loop(
    client: RawClient, topic: Topic, monkeypatch: pytest.MonkeyPatch, count: int, codec: Codec, long: bool
) -> None:
    threads = record_threads(monkeypatch, lookup, "timestamps")
    start = now_ms() - 10_000
    produce(client, topic, batch_of([record(b"", timestamp=start + i) for i in range(count)], codec))

    assert list_offset(client, topic, start + 5).offset == 5
    assert list_offset(client, topic, MAX_TIMESTAMP).offset == count - 1

    assert [name.startswith("penstock-worker") for name in threads] == [long, long]


def test_timestamps_out_of_order_find_the_first_record_that_is_late_enough(
    client: RawClient, topic: Topic
) -> None:
    start = now_ms() - 1000
    for offset, delta in enumerate([50, 10, 90, 20, 90]):
        produce(client, topic, batch_of([record(b"%d" % offset, timestamp=start + delta)]))

    found = [list_offset(client, topic, start + delta).offset for delta in (0, 50, 51, 91)]

    assert found == [0, 0, 2, -1]
    latest = list_offset(client, topic, MAX_TIMESTAMP)
    assert (latest.offset, latest.timestamp) == (2, start + 90)


@pytest.mark.parametrize("version", range(7, 12))
def test_the_record_with_the_largest_timestamp(client: RawClient, topic: Topic, version: int) -> None:
    start = now_ms() - 1000
    produce(client, topic, batch_of([record(b"x", timestamp=start + d) for d in (1, 500, 3)]))
    append_at(client, topic, start + 400)

    listed = list_offset(client, topic, MAX_TIMESTAMP, version=version)

    assert (listed.error_code, listed.offset, listed.timestamp) == (ErrorCode.NONE, 1, start + 500)
    assert listed.leader_epoch == 0


def test_the_largest_timestamp_is_that_of_a_record_and_not_of_its_header(
    client: RawClient, topic: Topic
) -> None:
    start = now_ms() - 1000
    header, data = open_batch(batch_of([record(b"x", timestamp=start + d) for d in (1, 500, 3)]))
    produce(client, topic, seal(header._replace(max_timestamp=start + 900), data))

    listed = list_offset(client, topic, MAX_TIMESTAMP)

    assert (listed.error_code, listed.offset, listed.timestamp) == (ErrorCode.NONE, 1, start + 500)


@pytest.mark.parametrize("version", range(7, 12))
def test_an_empty_log_has_no_largest_timestamp(client: RawClient, topic: Topic, version: int) -> None:
    listed = list_offset(client, topic, MAX_TIMESTAMP, version=version)

    assert (listed.error_code, listed.offset, listed.timestamp) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize("version", range(8, 12))
def test_the_local_log_starts_where_the_log_starts(client: RawClient, topic: Topic, version: int) -> None:
    append(client, topic, b"0")

    listed = list_offset(client, topic, EARLIEST_LOCAL, version=version)

    assert (listed.error_code, listed.offset, listed.leader_epoch) == (ErrorCode.NONE, 0, 0)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(LATEST_TIERED, v) for v in range(9, 12)] + [(EARLIEST_PENDING_UPLOAD, 11)],
)
def test_nothing_is_tiered(client: RawClient, topic: Topic, timestamp: int, version: int) -> None:
    append(client, topic, b"0")

    listed = list_offset(client, topic, timestamp, version=version)

    assert (listed.error_code, listed.offset, listed.timestamp) == (ErrorCode.NONE, -1, -1)
    assert listed.leader_epoch == -1


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [
        *((MAX_TIMESTAMP, v) for v in (1, 5, 6)),
        *((EARLIEST_LOCAL, v) for v in (1, 5, 7)),
        *((LATEST_TIERED, v) for v in (1, 8)),
        *((EARLIEST_PENDING_UPLOAD, v) for v in (1, 9, 10)),
        *((-7, v) for v in (1, 6, 11)),
    ],
)
def test_special_timestamps_need_the_version_that_brought_them(
    client: RawClient, topic: Topic, timestamp: int, version: int
) -> None:
    append(client, topic, b"0")

    listed = list_offset(client, topic, timestamp, version=version)

    assert (listed.error_code, listed.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    missing = list_offset(client, Topic("missing", topic.id), timestamp, version=version)
    assert missing.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", edge_versions(LIST_OFFSETS))
def test_unknown_topics_and_partitions(client: RawClient, topic: Topic, version: int) -> None:
    missing = list_offset(client, Topic("no-such-topic", topic.id), LATEST, version=version)
    beyond = list_offset(client, topic, LATEST, partition=3, version=version)

    assert missing.error_code == beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.offset == beyond.offset == -1


@pytest.mark.parametrize("version", [4, 11])
def test_a_leader_epoch_that_we_do_not_know_yet(client: RawClient, topic: Topic, version: int) -> None:
    ours = list_offset(client, topic, LATEST, version=version, current_leader_epoch=0)
    newer = list_offset(client, topic, LATEST, version=version, current_leader_epoch=1)

    assert (ours.error_code, newer.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH)


@pytest.mark.parametrize("version", edge_versions(LIST_OFFSETS))
def test_a_partition_requested_twice_is_refused(client: RawClient, topic: Topic, version: int) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * 2
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=twice)], timeout_ms=1000
    )

    response = client.call(LIST_OFFSETS, version, request)

    codes = {p.error_code for t in response.topics for p in t.partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


def append_at(client: RawClient, topic: Topic, timestamp: int) -> None:
    answer = produce(client, topic, batch_of([record(b"x", timestamp=timestamp)]))
    assert answer.error_code == ErrorCode.NONE


# -- OffsetForLeaderEpoch


def end_of_epoch(
    client: RawClient, topic: Topic, epoch: int, *, version: int, current: int = -1, partition: int = 0
) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[wanted])]
    )
    ((answer,),) = [t.partitions for t in client.call(OFFSET_FOR_LEADER_EPOCH, version, request).topics]
    return answer


EPOCH_VERSIONS = pytest.mark.parametrize("version", every_version(OFFSET_FOR_LEADER_EPOCH))


@EPOCH_VERSIONS
def test_the_current_epoch_ends_at_the_end_of_the_log(client: RawClient, topic: Topic, version: int) -> None:
    empty = end_of_epoch(client, topic, 0, version=version)
    append(client, topic, b"0", b"1")
    filled = end_of_epoch(client, topic, 0, version=version, current=0)

    assert (empty.error_code, empty.leader_epoch, empty.end_offset) == (ErrorCode.NONE, 0, 0)
    assert (filled.error_code, filled.leader_epoch, filled.end_offset) == (ErrorCode.NONE, 0, 2)


@EPOCH_VERSIONS
def test_an_epoch_that_is_still_to_come_is_undefined(client: RawClient, topic: Topic, version: int) -> None:
    append(client, topic, b"0")

    answer = end_of_epoch(client, topic, 5, version=version)

    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.NONE, -1, -1)


@EPOCH_VERSIONS
def test_epochs_of_leaders_and_partitions_that_are_not_ours(
    client: RawClient, topic: Topic, version: int
) -> None:
    newer = end_of_epoch(client, topic, 0, version=version, current=1)
    missing = end_of_epoch(client, Topic("no-such-topic", topic.id), 0, version=version)
    beyond = end_of_epoch(client, topic, 0, version=version, partition=1)

    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert missing.error_code == beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert newer.end_offset == missing.end_offset == -1
