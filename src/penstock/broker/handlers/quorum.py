"""The quorum's APIs: elections, the metadata log and its snapshots, changes of the voters, DescribeQuorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.node.addresses import NodeAddresses
from penstock.broker.node.controller import NotController
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.broker.node.quorum_wire import decode_request, encode_response
from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.ports import Clock
from penstock.raft import messages as raft
from penstock.raft.node import ReplicaDescription
from penstock.wire.apis.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.wire.apis.begin_quorum_epoch import BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequest
from penstock.wire.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    QuorumNode,
    ReplicaState,
)
from penstock.wire.apis.end_quorum_epoch import END_QUORUM_EPOCH
from penstock.wire.apis.endpoints import Endpoint, NodeEndpoint
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.fetch_snapshot import FETCH_SNAPSHOT
from penstock.wire.apis.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from penstock.wire.apis.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from penstock.wire.apis.vote import VOTE
from penstock.wire.schema import Struct

__all__ = ["QuorumHandlers"]

_QUORUM_APIS: Final = (VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH, FETCH_SNAPSHOT)


class QuorumHandlers:
    """The APIs of the metadata quorum."""

    def __init__(
        self,
        cluster_id: str,
        node_id: int,
        quorum: QuorumDriver,
        addresses: NodeAddresses,
        listeners: Sequence[Listener],
        awake_clock: Clock,
    ) -> None:
        """`awake_clock` is the clock of the quorum's timeouts."""
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._addresses = addresses
        self._node_id = node_id
        self._listeners = listeners
        self._clock = awake_clock

    def to_quorum(self, context: Context, request: Any) -> Struct | Deferred[Struct]:
        """Pass Vote, EndQuorumEpoch, FetchSnapshot or Fetch of the metadata log to the Raft node.

        The response may come later: a Fetch waits for new records.
        """
        addresses = self._addresses
        if request.cluster_id not in (None, self._cluster_id):
            return _refusal(request, ErrorCode.INCONSISTENT_CLUSTER_ID)
        message = decode_request(request)
        if message is None:
            return _refusal(request, ErrorCode.INVALID_REQUEST)
        answer: Deferred[Struct] = Deferred()

        def answered(response: raft.Response) -> None:
            answer.resolve(encode_response(message, response, addresses.endpoint_of(response.leader_id)))

        self._quorum.submit(message).then(answered)
        return answer

    def begin_epoch(self, context: Context, request: BeginQuorumEpochRequest) -> Struct | Deferred[Struct]:
        """Learn a new leader and its endpoint."""
        if request.topics and request.topics[0].partitions and request.leader_endpoints:
            first, leader_id = request.leader_endpoints[0], request.topics[0].partitions[0].leader_id
            self._addresses.learn([NodeEndpoint(node_id=leader_id, host=first.host, port=first.port)])
        return self.to_quorum(context, request)

    async def describe_quorum(
        self, context: Context, request: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        now_ms = self._clock.monotonic() * 1000
        described = self._quorum.node.describe(now_ms)
        if described is None:
            raise NotController("another node leads the quorum")
        wall_ms = self._clock.now_ms()

        def state(replica: ReplicaDescription) -> ReplicaState:
            def wall(time_ms: float) -> int:
                return -1 if time_ms < 0 else int(wall_ms - (now_ms - time_ms))

            return ReplicaState(
                replica_id=replica.key.id,
                replica_directory_id=replica.key.directory_id,
                log_end_offset=replica.log_end_offset,
                last_fetch_timestamp=wall(replica.last_fetch_ms),
                last_caught_up_timestamp=wall(replica.last_caught_up_ms),
            )

        partition = DescribeQuorumResponsePartition(
            leader_id=described.leader_id,
            leader_epoch=described.epoch,
            high_watermark=described.high_watermark,
            current_voters=[state(replica) for replica in described.voters],
            observers=[state(replica) for replica in described.observers],
        )
        if [t.topic_name for t in request.topics] != [METADATA_TOPIC]:
            partition = DescribeQuorumResponsePartition(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DescribeQuorumResponse(
            topics=[DescribeQuorumResponseTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
            nodes=[
                QuorumNode(
                    node_id=voter.key.id,
                    listeners=self._shown_endpoints(voter),
                )
                for voter in self._quorum.state.voters
            ],
        )

    def _shown_endpoints(self, voter: raft.Voter) -> list[Endpoint]:
        """The endpoints of a voter; a broker without an internal listener has its client listeners only."""
        known = voter.endpoints or filter(None, [self._addresses.endpoint_of(voter.key.id)])
        shown = [Endpoint(name=e.name, host=e.host, port=e.port) for e in known if e.host]
        if not shown and voter.key.id == self._node_id:
            shown = [
                Endpoint(name=e.name, host=e.advertised_host, port=e.advertised_port) for e in self._listeners
            ]
        return shown

    async def add_raft_voter(self, context: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        voter = raft.Voter(raft.ReplicaKey(request.voter_id, request.voter_directory_id), _endpoints(request))
        code, message = await self._change_voters(
            request.cluster_id, raft.AddVoterRequest(voter, request.ack_when_committed)
        )
        return AddRaftVoterResponse(error_code=code, error_message=message)

    async def remove_raft_voter(
        self, context: Context, request: RemoveRaftVoterRequest
    ) -> RemoveRaftVoterResponse:
        key = raft.ReplicaKey(request.voter_id, request.voter_directory_id)
        code, message = await self._change_voters(request.cluster_id, raft.RemoveVoterRequest(key))
        return RemoveRaftVoterResponse(error_code=code, error_message=message)

    async def update_raft_voter(
        self, context: Context, request: UpdateRaftVoterRequest
    ) -> UpdateRaftVoterResponse:
        feature = request.kraft_version_feature
        voter = raft.Voter(
            raft.ReplicaKey(request.voter_id, request.voter_directory_id),
            _endpoints(request),
            feature.min_supported_version,
            feature.max_supported_version,
        )
        try:
            code, _ = await self._change_voters(
                request.cluster_id, raft.UpdateVoterRequest(voter, request.current_leader_epoch)
            )
        except NotController:
            # The request did not come in an Envelope, so no broker would forward it to another node.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        quorum = self._quorum.state
        leader = self._addresses.endpoint_of(quorum.leader_id)
        current = None
        if leader is not None:
            current = CurrentLeader(
                leader_id=quorum.leader_id,
                leader_epoch=quorum.epoch,
                host=leader.host,
                port=leader.port,
            )
        return UpdateRaftVoterResponse(error_code=code, current_leader=current)

    async def _change_voters(
        self, cluster_id: str | None, request: raft.Request
    ) -> tuple[ErrorCode, str | None]:
        if cluster_id not in (None, self._cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is the cluster {self._cluster_id}"
        response = await self._quorum.submit_and_wait(request)
        assert isinstance(response, raft.VoterChangeResponse)
        if response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise NotController("another node leads the quorum")
        return response.error, response.message or None


def _refusal(request: Any, code: ErrorCode) -> Struct:
    response: Any = next(api for api in _QUORUM_APIS if api.request is type(request)).response()
    response.error_code = code
    refused: Struct = response
    return refused


def _endpoints(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> tuple[raft.Endpoint, ...]:
    return tuple(raft.Endpoint(e.name, e.host, e.port) for e in request.listeners)
