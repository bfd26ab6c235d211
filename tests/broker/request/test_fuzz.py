"""A few seconds of fuzzing (`PENSTOCK_FUZZ_S` for more, `make fuzz` for a minute), and what it has found."""

from __future__ import annotations

import os
import struct

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.fuzz import fuzz
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, until

SECONDS = float(os.environ.get("PENSTOCK_FUZZ_S", "6"))


@pytest.mark.timeout(300 + 2 * SECONDS)
@pytest.mark.process  # a regular expression is compiled in a child
def test_no_attack_ends_the_broker_or_delays_another_client() -> None:
    report = fuzz(SECONDS, seed=20260515)

    # The attacks got somewhere: most are refused, but many are understood.
    assert report.answered > 0.1 * report.attacks.total()
    assert report.refused > 0.1 * report.attacks.total()


def test_many_half_frames_delay_no_client_and_take_no_memory() -> None:
    """A length that promises much reserves nothing."""
    with broker() as running:
        attackers = [RawClient(running.bootstrap) for _ in range(200)]
        try:
            for attacker in attackers:
                attacker.socket.sendall(struct.pack(">i", 100_000_000) + b"\x00\x03")
            with RawClient(running.bootstrap) as client:
                assert client.call(API_VERSIONS, 0, ApiVersionsRequest()).error_code == ErrorCode.NONE
            assert running.broker.stages.listening.server.pool.held < 500 << 20
            assert running.broker.stages.listening.server.pool.held <= 200 * (2 << 20)
        finally:
            for attacker in attackers:
                attacker.close()


@pytest.mark.parametrize("length", [-1, -(2**31), 104857601, 2**31 - 1])
def test_a_frame_of_an_impossible_length_closes_the_connection(address: str, length: int) -> None:
    with RawClient(address) as attacker:
        attacker.socket.sendall(struct.pack(">i", length) + bytes(100))

        assert attacker.is_closed()


@pytest.mark.parametrize("size", [0, 1, 7, 9])
def test_a_frame_too_short_for_a_header_closes_the_connection(address: str, size: int) -> None:
    with RawClient(address) as attacker:
        attacker.socket.sendall(struct.pack(">i", size) + bytes(size))

        assert attacker.is_closed()


# -- what fuzzing has found


def test_an_offset_kept_for_longer_than_time_lasts(client: RawClient, topic: Topic) -> None:
    commit = OffsetCommitRequest(
        group_id="patient",
        retention_time_ms=2**63 - 1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name, partitions=[OffsetCommitRequestPartition(partition_index=0)]
            )
        ],
    )
    until(lambda: not client.call(FIND_COORDINATOR, 3, FindCoordinatorRequest(key="patient")).error_code)

    def code() -> int:
        (answer,) = client.call(OFFSET_COMMIT, 3, commit).topics[0].partitions
        return answer.error_code

    until(lambda: code() not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR))
    assert code() == ErrorCode.NONE
