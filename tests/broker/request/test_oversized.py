"""Requests that are refused by their size alone."""

from __future__ import annotations

import pytest

from penstock.broker.request.oversized import RECORDS, oversized, with_too_many_elements
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.testing import broker
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.sync_group import SYNC_GROUP
from penstock.wire.slicing import MAX_ELEMENTS
from tests.broker.raw import RawClient

_RECORD = 1000


def test_requests_of_members_are_bounded_by_the_record_of_a_group() -> None:
    for api in (JOIN_GROUP, SYNC_GROUP):
        assert oversized(api, RECORDS * _RECORD, _RECORD) is None
        assert oversized(api, RECORDS * _RECORD + 1, _RECORD).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_other_requests_have_no_such_bound() -> None:
    assert oversized(PRODUCE, 100 * _RECORD, _RECORD) is None


def test_a_response_with_an_error_code_at_its_top_refuses_too_many_elements() -> None:
    response = with_too_many_elements(CONSUMER_GROUP_HEARTBEAT, 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message == f"The request has more than {MAX_ELEMENTS} elements."
    # From version 4 on there is an error code for each key.
    assert with_too_many_elements(FIND_COORDINATOR, 3).error_code == ErrorCode.INVALID_REQUEST
    assert with_too_many_elements(FIND_COORDINATOR, 4) is None
    assert with_too_many_elements(DELETE_GROUPS, 2) is None


def test_a_request_with_too_many_elements() -> None:
    """It closed the connection, whatever its API."""
    names = [""] * (MAX_ELEMENTS + 1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=names
    )
    with broker() as running, RawClient(running.bootstrap) as client:
        for _ in range(2):
            response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
            assert response.error_code == ErrorCode.INVALID_REQUEST
        with pytest.raises((ProtocolError, OSError, EOFError)):
            client.call(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=names))
