"""DeleteRecords: the log's start moves, and stays where it was moved to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID
from penstock.testing import broker
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
)
from tests.broker.handlers.transaction_requests import find
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    LATEST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_before,
    delete_topic,
    every_version,
    fetch,
    list_offset,
    now_ms,
    produce,
    read_all,
    record,
)
from tests.broker.sessions import SessionClient

VERSIONS = pytest.mark.parametrize("version", every_version(DELETE_RECORDS))
HIGH_WATERMARK = -1


def fill(client: RawClient, topic: Topic) -> None:
    """Offsets 0 to 9, two to a batch."""
    for i in range(5):
        append(client, topic, b"%d" % (2 * i), b"%d" % (2 * i + 1))


@VERSIONS
def test_records_before_an_offset_are_gone(client: RawClient, topic: Topic, version: int) -> None:
    fill(client, topic)

    answer = delete_before(client, topic, 5, version=version)

    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 5)
    assert fetch(client, topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [r.value for r in read_all(client, topic, 5)] == [b"5", b"6", b"7", b"8", b"9"]
    assert fetch(client, topic, 5).log_start_offset == 5
    assert list_offset(client, topic, EARLIEST).offset == 5
    assert list_offset(client, topic, LATEST).offset == 10


@VERSIONS
def test_minus_one_deletes_up_to_the_high_watermark(client: RawClient, topic: Topic, version: int) -> None:
    fill(client, topic)

    answer = delete_before(client, topic, HIGH_WATERMARK, version=version)

    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 10)
    assert read_all(client, topic, 10) == []
    assert append(client, topic, b"10") == 10


@VERSIONS
@pytest.mark.parametrize("offset", [11, -2, 2**62])
def test_an_offset_that_is_not_there_is_out_of_range(
    client: RawClient, topic: Topic, version: int, offset: int
) -> None:
    fill(client, topic)

    answer = delete_before(client, topic, offset, version=version)

    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert len(read_all(client, topic)) == 10


def test_the_start_never_moves_back(client: RawClient, topic: Topic) -> None:
    fill(client, topic)
    delete_before(client, topic, 5)

    answer = delete_before(client, topic, 3)

    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 5)
    assert list_offset(client, topic, EARLIEST).offset == 5


@VERSIONS
def test_unknown_partitions(client: RawClient, topic: Topic, version: int) -> None:
    missing = delete_before(client, Topic("no-such-topic", topic.id), 0, version=version)
    beyond = delete_before(client, topic, 0, partition=3, version=version)

    assert missing.error_code == beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
def test_compacted_topics_keep_their_records(client: RawClient, policy: str, code: ErrorCode) -> None:
    topic = create_topic(client, configs={"cleanup.policy": policy})
    produce(client, topic, batch_of([record(b"v", key=b"k")]))

    assert delete_before(client, topic, 1).error_code == code


@pytest.mark.parametrize(("name", "key_type"), [("__consumer_offsets", 0), ("__transaction_state", 1)])
def test_coordinators_keep_their_state_under_any_cleanup_policy(
    client: RawClient, name: str, key_type: int
) -> None:
    assert find(client, "key", key_type) == ErrorCode.NONE

    assert delete_before(client, Topic(name, NO_TOPIC_ID), 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_timestamp_does_not_find_deleted_records(client: RawClient, topic: Topic) -> None:
    start = now_ms() - 1000
    for i in range(5):
        produce(client, topic, batch_of([record(b"%d" % i, timestamp=start + i)]))
    delete_before(client, topic, 3)

    assert list_offset(client, topic, start).offset == 3


def test_a_session_reports_the_new_log_start(client: RawClient, topic: Topic) -> None:
    fill(client, topic)
    session = SessionClient(client, 18)
    session.fetch((topic, 0, 10))
    assert session.fetch() == {}
    delete_before(client, topic, 5)

    answers = session.fetch()

    assert answers[0].log_start_offset == 5


# -- lasting


def test_the_start_survives_a_restart(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        fill(client, topic)
        delete_before(client, topic, 5)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert list_offset(client, topic, EARLIEST).offset == 5
        assert [r.value for r in read_all(client, topic, 5)] == [b"5", b"6", b"7", b"8", b"9"]


@contextmanager
def broker_process(data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker that can be killed."""
    command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--data", os.fspath(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[1]


@pytest.mark.process
def test_acknowledged_deletions_survive_a_kill(tmp_path: Path) -> None:
    with broker_process(tmp_path) as (process, address), RawClient(address) as client:
        topic = create_topic(client)
        fill(client, topic)
        assert delete_before(client, topic, 5).low_watermark == 5
        process.send_signal(signal.SIGKILL)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert list_offset(client, topic, EARLIEST).offset == 5
        assert fetch(client, topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.process
def test_a_topic_made_again_does_not_inherit_the_offsets_of_the_old_one(tmp_path: Path) -> None:
    """Checkpoints know partitions by name: one of an earlier life must not be applied to the next."""
    with broker_process(tmp_path) as (process, address), RawClient(address) as client:
        old = create_topic(client, "again")
        fill(client, old)
        assert delete_before(client, old, 5).low_watermark == 5
        delete_topic(client, old)
        new = create_topic(client, "again")
        append(client, new, b"new")
        process.send_signal(signal.SIGKILL)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert list_offset(client, new, EARLIEST).offset == 0
        assert [r.value for r in read_all(client, new)] == [b"new"]
        assert append(client, new, b"newer") == 1
