"""The quorum's messages as Kafka's requests and responses: each one comes back as it was sent."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.node.quorum_wire import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_voter_update,
)
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.raft import messages as raft
from penstock.wire.apis import fetch, vote

CLUSTER = "cluster"
VOTER = raft.ReplicaKey(2, b"v" * 16)
SELF = raft.ReplicaKey(1, b"s" * 16)
ENDPOINT = raft.Endpoint("INTERNAL", "host", 19092)
NONE = ErrorCode.NONE

VOTE = raft.VoteRequest(SELF, 7, raft.LogPoint(6, 40), True, VOTER)
BEGIN = raft.BeginEpochRequest(1, 7, VOTER)
END = raft.EndEpochRequest(1, 7, (VOTER, raft.ReplicaKey(3, b"w" * 16)))
FETCH = raft.FetchRequest(SELF, 7, 40, 6, 500, 1 << 20, 39, 12345)
SNAPSHOT = raft.FetchSnapshotRequest(SELF, 7, raft.LogPoint(5, 30), 100, 1 << 20)


@pytest.mark.parametrize("request_", [VOTE, BEGIN, END, FETCH, SNAPSHOT], ids=lambda r: type(r).__name__)
def test_a_request(request_: raft.Request) -> None:
    _, encoded = encode_request(request_, CLUSTER, [ENDPOINT])
    assert encoded.cluster_id == CLUSTER  # type: ignore[attr-defined]
    assert decode_request(encoded) == request_


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (VOTE, raft.VoteResponse(NONE, 7, 1, True)),
        (VOTE, raft.VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 8, -1, False)),
        (BEGIN, raft.EpochResponse(NONE, 7, 1)),
        (END, raft.EpochResponse(NONE, 7, 1)),
        (FETCH, raft.FetchResponse(NONE, 7, 1, 39, 3, b"records")),
        (FETCH, raft.FetchResponse(NONE, 7, 1, 39, 3, diverging=raft.LogPoint(4, 20))),
        (FETCH, raft.FetchResponse(NONE, 7, 1, 39, 3, snapshot=raft.LogPoint(5, 30))),
        (SNAPSHOT, raft.FetchSnapshotResponse(NONE, 7, 1, raft.LogPoint(5, 30), 200, 100, b"chunk")),
    ],
)
def test_a_response(request_: raft.Request, response: Any) -> None:
    assert decode_response(request_, encode_response(request_, response, ENDPOINT)) == response


@pytest.mark.parametrize("response", [raft.VoteResponse(NONE, 7, 1, True), raft.FetchResponse(NONE, 7, 1)])
def test_a_response_has_the_endpoint_of_the_leader(response: Any) -> None:
    request = VOTE if isinstance(response, raft.VoteResponse) else FETCH
    (node,) = encode_response(request, response, ENDPOINT).node_endpoints  # type: ignore[attr-defined]
    assert (node.node_id, node.host, node.port) == (1, "host", 19092)
    assert encode_response(request, response, None).node_endpoints == []  # type: ignore[attr-defined]


def test_a_request_for_several_partitions_is_none_of_the_quorums() -> None:
    _, encoded = encode_request(FETCH, CLUSTER, [])
    assert isinstance(encoded, fetch.FetchRequest)
    encoded.topics[0].partitions *= 2
    assert decode_request(encoded) is None
    assert decode_request(fetch.FetchRequest()) is None


def test_an_error_of_the_whole_response_is_an_error_of_the_protocol() -> None:
    with pytest.raises(ProtocolError, match="error 41"):
        decode_response(VOTE, vote.VoteResponse(error_code=41))


def test_an_error_code_of_a_newer_version_is_unknown() -> None:
    encoded = encode_response(VOTE, raft.VoteResponse(NONE, 7, 1, True), None)
    assert isinstance(encoded, vote.VoteResponse)
    encoded.topics[0].partitions[0].error_code = 9999
    assert decode_response(VOTE, encoded).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_update_of_a_voter_has_its_endpoints_and_versions() -> None:
    encoded = encode_voter_update(raft.Voter(VOTER, (ENDPOINT,), 0, 1), CLUSTER, 7)
    assert (encoded.voter_id, encoded.voter_directory_id, encoded.current_leader_epoch) == (*VOTER, 7)
    assert [(e.name, e.host, e.port) for e in encoded.listeners] == [tuple(ENDPOINT)]
    feature = encoded.kraft_version_feature
    assert (feature.min_supported_version, feature.max_supported_version) == (0, 1)
