"""Regular expressions that are expensive to compile or to match do not hold the event loop."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from tests.hostile.clients import Kind, frame_of
from tests.hostile.conftest import Metered

pytestmark = pytest.mark.process

#: RE2 took a second for few characters, its memory bound does not bound Unicode classes, and the second
#: expression is cheap to compile and takes milliseconds for each name.
EXPENSIVE = {
    "repeated": "(.{0,900}" * 9 + ")" * 9 + "z",
    "folded": "((?i)k{0,900}" * 7 + ")" * 7,
    "nested": "(.{0,30}){0,30}",
    "classes": r"\pL" * 10_000,
    "optional": "a?" * 16_000,
    "counted": "a{1000}" * 4_000,
}


def heartbeat(regex: str, number: int) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"by-regex-{number}",
        member_id=f"member-{number}",
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


@pytest.mark.parametrize("name", EXPENSIVE)
def test_a_heartbeat_with_an_expensive_expression_delays_no_request(plain: Metered, name: str) -> None:
    numbers = iter(range(100))

    def frame() -> bytes:
        number = next(numbers)
        # Another expression each time: a known one costs nothing.
        regex = EXPENSIVE[name] + "b" * number
        return frame_of(CONSUMER_GROUP_HEARTBEAT, 1, heartbeat(regex, number))

    reading = plain.meter.within_limits(Kind.OPEN, frame)
    assert not reading.exceeds(plain.meter.limits), reading


@pytest.mark.parametrize("name", EXPENSIVE)
def test_a_listing_with_an_expensive_expression_delays_no_request(plain: Metered, name: str) -> None:
    request = ListTransactionsRequest(transactional_id_pattern=EXPENSIVE[name])
    reading = plain.meter.within_limits(Kind.OPEN, lambda: frame_of(LIST_TRANSACTIONS, 2, request))
    assert not reading.exceeds(plain.meter.limits), reading


def test_a_known_expression_is_not_compiled_again(plain: Metered) -> None:
    client = plain.meter.client(Kind.OPEN)
    regex = "known-(0|1)" + "|never" * 100
    for _ in range(2):
        assert not client.call(CONSUMER_GROUP_HEARTBEAT, heartbeat(regex, 1000)).error_code
    reading = plain.meter.least(Kind.OPEN, frame_of(CONSUMER_GROUP_HEARTBEAT, 1, heartbeat(regex, 1000)))
    assert reading.step_ms < 2 * plain.meter.limits.scale, reading


def test_an_expression_that_is_too_large_is_an_error_of_its_heartbeat(plain: Metered) -> None:
    client = plain.meter.client(Kind.OPEN)
    answer = client.call(CONSUMER_GROUP_HEARTBEAT, heartbeat(EXPENSIVE["repeated"], 1001))
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "too large" in answer.error_message
