"""Converts the quorum's messages to Kafka's requests and responses, and back.

The quorum has one partition, so each request and each response contains one. Every response contains the
endpoint of the leader that it names: a node whose log is behind may not know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.ports import FileRange
from penstock.raft import messages as raft
from penstock.wire.api import Api
from penstock.wire.apis import begin_quorum_epoch as begin
from penstock.wire.apis import end_quorum_epoch as end
from penstock.wire.apis import fetch, fetch_snapshot, vote
from penstock.wire.apis.endpoints import Endpoint, KRaftVersionFeature, NodeEndpoint
from penstock.wire.apis.update_raft_voter import UpdateRaftVoterRequest
from penstock.wire.schema import Struct

__all__ = [
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_voter_update",
]


# -- requests to other nodes


def encode_request(
    request: raft.Request, cluster_id: str, endpoints: Sequence[raft.Endpoint]
) -> tuple[Api[Any, Any], Struct]:
    """The API and the request of a message; `endpoints` are this node's own."""
    listeners = [Endpoint(name=e.name, host=e.host, port=e.port) for e in endpoints]
    match request:
        case raft.VoteRequest():
            return vote.VOTE, _vote(request, cluster_id)
        case raft.BeginEpochRequest():
            partition = begin.BeginQuorumEpochRequestPartition(
                voter_directory_id=request.voter.directory_id,
                leader_id=request.leader_id,
                leader_epoch=request.epoch,
            )
            return begin.BEGIN_QUORUM_EPOCH, begin.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=request.voter.id,
                topics=[
                    begin.BeginQuorumEpochRequestTopic(topic_name=METADATA_TOPIC, partitions=[partition])
                ],
                leader_endpoints=listeners,
            )
        case raft.EndEpochRequest():
            return end.END_QUORUM_EPOCH, _end_epoch(request, cluster_id, listeners)
        case raft.FetchRequest():
            return fetch.FETCH, _fetch(request, cluster_id)
        case raft.FetchSnapshotRequest():
            return fetch_snapshot.FETCH_SNAPSHOT, _fetch_snapshot(request, cluster_id)
        case _:
            raise AssertionError(f"{request} is no message between nodes")


def encode_voter_update(voter: raft.Voter, cluster_id: str, epoch: int) -> UpdateRaftVoterRequest:
    """The UpdateRaftVoter request of a voter."""
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
        ),
    )


def _vote(request: raft.VoteRequest, cluster_id: str) -> vote.VoteRequest:
    partition = vote.VoteRequestPartition(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=cluster_id,
        voter_id=request.voter.id,
        topics=[vote.VoteRequestTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def _end_epoch(
    request: raft.EndEpochRequest, cluster_id: str, listeners: list[Endpoint]
) -> end.EndQuorumEpochRequest:
    partition = end.EndQuorumEpochRequestPartition(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            end.PreferredCandidate(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.successors
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end.EndQuorumEpochRequestTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=listeners,
    )


def _fetch(request: raft.FetchRequest, cluster_id: str) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=request.max_bytes,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.id),
        last_checksum=request.last_checksum,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_snapshot(
    request: raft.FetchSnapshotRequest, cluster_id: str
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.FetchSnapshotPartition(
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=request.snapshot.offset, epoch=request.snapshot.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[fetch_snapshot.FetchSnapshotTopic(name=METADATA_TOPIC, partitions=[partition])],
    )


def decode_response(request: raft.Request, response: Any) -> raft.Response:
    """The message of a peer's response; ProtocolError if it does not match the request."""
    topics: Any = response.responses if isinstance(response, fetch.FetchResponse) else response.topics
    if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1:
        raise ProtocolError(f"a quorum request was answered with error {response.error_code}")
    partition = topics[0].partitions[0]
    match response:
        case fetch.FetchResponse():
            return _fetched(partition)
        case fetch_snapshot.FetchSnapshotResponse():
            leader = partition.current_leader or fetch_snapshot.LeaderIdAndEpoch(leader_id=-1)
            return raft.FetchSnapshotResponse(
                _code(partition.error_code),
                leader.leader_epoch,
                leader.leader_id,
                raft.LogPoint(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
                partition.size,
                partition.position,
                partition.unaligned_records,
            )
        case vote.VoteResponse():
            return raft.VoteResponse(
                _code(partition.error_code),
                partition.leader_epoch,
                partition.leader_id,
                partition.vote_granted,
                partition.conditional,
            )
        case _:
            return raft.EpochResponse(
                _code(partition.error_code), partition.leader_epoch, partition.leader_id
            )


def _code(code: int) -> ErrorCode:
    """The error of a code; UNKNOWN_SERVER_ERROR for a code of a newer version."""
    return ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.UNKNOWN_SERVER_ERROR


def _fetched(partition: fetch.PartitionData) -> raft.FetchResponse:
    leader = partition.current_leader or fetch.LeaderIdAndEpoch()
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    assert not isinstance(partition.records, FileRange)
    return raft.FetchResponse(
        _code(partition.error_code),
        leader.leader_epoch,
        leader.leader_id,
        partition.high_watermark,
        partition.log_start_offset,
        partition.records or b"",
        None if diverging is None else raft.LogPoint(diverging.epoch, diverging.end_offset),
        None if snapshot is None else raft.LogPoint(snapshot.epoch, snapshot.end_offset),
    )


# -- requests of other nodes


def decode_request(request: Any) -> raft.Request | None:
    """The message of a peer's request; None if it names another partition than the quorum's, or several."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    partition = topic.partitions[0]
    match request:
        case vote.VoteRequest():
            return raft.VoteRequest(
                raft.ReplicaKey(partition.replica_id, partition.replica_directory_id),
                partition.replica_epoch,
                raft.LogPoint(partition.last_offset_epoch, partition.last_offset),
                partition.pre_vote,
                raft.ReplicaKey(request.voter_id, partition.voter_directory_id),
            )
        case begin.BeginQuorumEpochRequest():
            return raft.BeginEpochRequest(
                partition.leader_id,
                partition.leader_epoch,
                raft.ReplicaKey(request.voter_id, partition.voter_directory_id),
            )
        case end.EndQuorumEpochRequest():
            successors = tuple(
                raft.ReplicaKey(c.candidate_id, c.candidate_directory_id)
                for c in partition.preferred_candidates
            )
            return raft.EndEpochRequest(partition.leader_id, partition.leader_epoch, successors)
        case fetch.FetchRequest():
            state = request.replica_state
            replica = request.replica_id if state is None else state.replica_id
            return raft.FetchRequest(
                raft.ReplicaKey(replica, partition.replica_directory_id),
                partition.current_leader_epoch,
                partition.fetch_offset,
                partition.last_fetched_epoch,
                request.max_wait_ms,
                min(request.max_bytes, partition.partition_max_bytes),
                partition.high_watermark,
                request.last_checksum,
            )
        case fetch_snapshot.FetchSnapshotRequest():
            return raft.FetchSnapshotRequest(
                raft.ReplicaKey(request.replica_id, partition.replica_directory_id),
                partition.current_leader_epoch,
                raft.LogPoint(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
                partition.position,
                request.max_bytes,
            )
    return None


def encode_response(request: raft.Request, response: raft.Response, leader: raft.Endpoint | None) -> Struct:
    """The response of a message; `leader` is the endpoint of the leader that it names, if known."""
    nodes = []
    if leader is not None:
        nodes = [NodeEndpoint(node_id=response.leader_id, host=leader.host, port=leader.port)]
    match response:
        case raft.FetchResponse():
            return _fetch_response(response, leader)
        case raft.FetchSnapshotResponse():
            return _snapshot_response(response, nodes)
        case raft.VoteResponse():
            voted = vote.VoteResponsePartition(
                error_code=response.error,
                leader_id=response.leader_id,
                leader_epoch=response.epoch,
                vote_granted=response.granted,
                conditional=response.conditional,
            )
            return vote.VoteResponse(
                topics=[vote.VoteResponseTopic(topic_name=METADATA_TOPIC, partitions=[voted])],
                node_endpoints=nodes,
            )
    if isinstance(request, raft.BeginEpochRequest):
        begun = begin.BeginQuorumEpochResponsePartition(
            error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
        )
        return begin.BeginQuorumEpochResponse(
            topics=[begin.BeginQuorumEpochResponseTopic(topic_name=METADATA_TOPIC, partitions=[begun])],
            node_endpoints=nodes,
        )
    ended = end.EndQuorumEpochResponsePartition(
        error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.EndQuorumEpochResponseTopic(topic_name=METADATA_TOPIC, partitions=[ended])],
        node_endpoints=nodes,
    )


def _fetch_response(response: raft.FetchResponse, leader: raft.Endpoint | None) -> fetch.FetchResponse:
    diverging, snapshot = response.diverging, response.snapshot
    partition = fetch.PartitionData(
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=response.leader_id, leader_epoch=response.epoch),
        records=response.records,
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        node_endpoints=[]
        if leader is None
        else [fetch.NodeEndpoint(node_id=response.leader_id, host=leader.host, port=leader.port)],
    )


def _snapshot_response(
    response: raft.FetchSnapshotResponse, nodes: list[NodeEndpoint]
) -> fetch_snapshot.FetchSnapshotResponse:
    partition = fetch_snapshot.SnapshotPartition(
        error_code=response.error,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=response.snapshot.offset, epoch=response.snapshot.epoch
        ),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.epoch
        ),
        size=response.size,
        position=response.position,
        unaligned_records=response.chunk,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.SnapshotTopic(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=nodes,
    )
