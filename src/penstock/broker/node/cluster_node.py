"""This process as a node of its cluster: the metadata log, the cluster image, and the other nodes.

A broker without an internal listener is a cluster of one node, and the only voter of its quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock.broker.base.awake_clock import AwakeClock
from penstock.broker.node.addresses import NodeAddresses
from penstock.broker.node.balancer import Balancer
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.node.controller import Controller
from penstock.broker.node.controller_client import ControllerClient
from penstock.broker.node.controller_loop import ControllerLoop
from penstock.broker.node.controller_service import ControllerService
from penstock.broker.node.image_check import ImageCheck
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.broker.node.metadata_log import MetadataLog
from penstock.broker.node.peers import Peers
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.broker.node.quorum_wire import decode_response, encode_request, encode_voter_update
from penstock.broker.node.snapshots import Snapshots
from penstock.broker.node.token_expiry import TokenExpiry
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.config.settings import read
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.model.ids import format_topic_id
from penstock.model.steps import Steps
from penstock.net.listener import Listener
from penstock.ports import World
from penstock.raft.messages import (
    NO_DIRECTORY,
    Endpoint,
    FetchRequest,
    FetchSnapshotRequest,
    LogPoint,
    ReplicaKey,
    Request,
    Response,
    UpdateVoterRequest,
    Voter,
    VoterChangeResponse,
)
from penstock.raft.node import RaftNode
from penstock.raft.ready import RaftConfig
from penstock.raft.voters import VoterSet
from penstock.storage.clock_file import ClockFile
from penstock.storage.log import Log
from penstock.wire.apis.update_raft_voter import UPDATE_RAFT_VOTER
from penstock.wire.schema import Struct

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = ["ClusterNode", "metadata_wait_ms", "new_cluster_id"]


def new_cluster_id(config: BrokerConfig) -> str | None:
    """The id of a new cluster, derived from the voters: all nodes compute the same id independently."""
    if config.penstock_cluster_id is not None or not config.quorum_voters:
        return config.penstock_cluster_id
    voters = ",".join(f"{node}@{host}:{port}" for node, (host, port) in sorted(config.quorum_voters.items()))
    return format_topic_id(blake2b(voters.encode(), digest_size=16).digest())


def metadata_wait_ms(config: BrokerConfig) -> int:
    """How long a fetch of metadata waits for records: the response arrives before the fetch timeout.

    Voters learn by the responses that the leader lives. Other brokers need them only for new records, and a
    leader may have many of them.
    """
    if config.may_vote:
        return min(500, config.controller_quorum_fetch_timeout_ms // 4)
    return min(1000, config.controller_quorum_fetch_timeout_ms // 2)


class ClusterNode:
    """Composes quorum, image, controller and peers, and runs them from `start` to `stop`.

    Why it has more than 25 methods: each is a step of the node's life or an answer about its role, and leaves
    the work to one of the composed parts.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        image: ClusterImage,
        metadata_log: Log,
        *,
        cluster_id: str,
        directory_id: bytes,
        internal: Listener | None,
        clock_file: ClockFile,
        is_new: bool,
        security: ClientSecurity | None,
        on_applied: Callable[[Sequence[Struct]], Awaitable[None]],
        on_clock_trust: Callable[[bool], None],
        on_leader_change: Callable[[], None],
    ) -> None:
        """`internal` is the listener for other nodes, `security` that of connections to theirs.

        `is_new` is true for a node without any data. `on_applied` is called with the metadata records that
        were applied, `on_clock_trust` with whether the wall clock is believed, on every change.
        Longer than other functions because it composes: one statement per part, in the order of dependency.
        """
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self._config = config
        self._world = world
        self.image = image
        #: the listener for requests of other nodes
        self.internal = internal
        self.addresses = NodeAddresses(config, image, internal, lambda: self.quorum.state.voters)
        self.log = MetadataLog(metadata_log, world.files, world.clock)
        self.loader = MetadataLoader(
            image,
            self.log,
            on_applied=on_applied,
            on_progress=self._progressed,
            on_failure=lambda error: self.quorum.fail(error),
        )
        self.image_check = ImageCheck(self.loader)
        #: the clock for timeouts of other nodes and of clients
        self.awake_clock = AwakeClock(
            world.clock, lambda stalled_s: self.controller_loop.was_held_up(stalled_s)
        )
        self.clock_watch = ClockWatch(
            config, world.clock, world.workers, clock_file, self._is_alone, on_clock_trust, is_new=is_new
        )
        self.quorum = QuorumDriver(
            self._raft_node(directory_id), self.log, self.awake_clock, world.workers, self._send, self
        )
        self.controller = Controller(
            image, self.quorum, self.loader, world.clock, lambda: self.controller_loop.metadata_changed()
        )
        longest_wait_s = max(config.replica_fetch_wait_max_ms, metadata_wait_ms(config)) / 1000
        self.peers = Peers(
            config.node_id, world.rng, self.addresses.locate, self._gone, longest_wait_s, security
        )
        self.controller_loop = ControllerLoop(
            config,
            image,
            self.controller,
            self.peers,
            self.awake_clock,
            world.rng,
            self.clock_watch.report,
        )
        self.balancer = Balancer(
            config, image, self.controller, self.peers, world.clock, lambda: self.controller_loop.policy
        )
        self.service = ControllerService(
            cluster_id, internal, image, self.image_check, self.controller, self.controller_loop
        )
        self.controller_client = ControllerClient(config, self.quorum, self.peers, self.service)
        self._token_expiry = TokenExpiry(config, image, self.controller, self.clock_watch.now_ms)
        self._snapshots = Snapshots(config, world, image, self.log, self.quorum)
        #: set when this node must leave its cluster after a failure
        self.is_over = asyncio.Event()
        #: leaders of the quorum that this process has seen elected
        self.elections = 0
        self._on_leader_change = on_leader_change

    def _raft_node(self, directory_id: bytes) -> RaftNode:
        config, name = self._config, self.internal.name if self.internal is not None else ""
        addresses = config.quorum_voters
        if not addresses:
            addresses = {config.node_id: ("", 0)}
        static = VoterSet(
            Voter(ReplicaKey(node), (Endpoint(name, host, port),)) for node, (host, port) in addresses.items()
        )
        history = self.log.voters(static)
        state = self.log.load_state(config.node_id, history.latest, self._world.rng)
        self.recovery_at_start = state.recovery
        if state.directory_id != NO_DIRECTORY:
            directory_id = state.directory_id
        return RaftNode(
            read(
                RaftConfig,
                config,
                key=ReplicaKey(config.node_id, directory_id),
                fetch_max_wait_ms=metadata_wait_ms(config),
            ),
            self.log,
            state,
            history,
            self._world.rng,
            self.awake_clock.monotonic() * 1000,
        )

    # -- start and stop

    def start(self) -> None:
        self.awake_clock.start()
        self.clock_watch.start()
        self.loader.start()
        self.quorum.start()
        self._token_expiry.start()
        if self.internal is not None:
            self.image_check.start()

    async def stop(self) -> None:
        await self._token_expiry.stop()
        await self.clock_watch.stop()
        await self.balancer.stop()
        await self.controller_loop.stop()
        await self.quorum.stop()
        await self.image_check.stop()
        await self.loader.stop()
        await self._snapshots.stop()
        self.peers.close()
        self.awake_clock.stop()

    # -- events of the quorum (QuorumEvents)

    def installed(self, snapshot: LogPoint) -> None:
        self.loader.installed(snapshot)

    def committed(self, end_offset: int) -> None:
        self.loader.committed(end_offset)

    def _progressed(self, end_offset: int, size: int) -> Steps[None] | None:
        self.controller_loop.healer.observed()
        return self._snapshots.applied(end_offset, size)

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self.elections += leader_id >= 0
        self.controller.leader_changed()
        if self.internal is not None:
            self.controller_loop.leader_changed(
                leader_id, self.quorum.state.contact, self.quorum.node.has_heard
            )
            self.balancer.leader_changed(leader_id)
        self.controller_client.leader_changed()
        self._on_leader_change()

    def failed(self, error: PenstockError) -> None:
        """Stop deciding: this node could lose records. In a cluster the process ends."""
        self.controller.failed(error)
        if self.internal is not None:
            self.is_over.set()
            # A start that waits for a change of the image would wait for ever.
            self._on_leader_change()

    # -- other nodes

    @property
    def leader_id(self) -> int:
        """The node that leads the quorum, -1 while none is known."""
        return self.quorum.state.leader_id

    def _is_alone(self) -> bool:
        """Whether there is no other node to compare the clock with.

        Only the active controller knows that. A broker that has just started has an empty image.
        """
        return self.internal is None or (
            self.controller.is_active and self.image.brokers.keys() <= {self.node_id}
        )

    def metadata_doubt(self) -> str | None:
        """Why the metadata is no proof that data may be deleted; None if it is one."""
        return self.image_check.diverged or self.loader.doubt

    @property
    def key(self) -> ReplicaKey:
        return self.quorum.state.key

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; ApiError while the broker is unregistered."""
        registered = self.image.brokers.get(self.node_id)
        if registered is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "this broker is not registered")
        return registered.epoch

    async def update_voter(self, timeout_s: float) -> None:
        """Update this voter's endpoints in the metadata log, if the log contains the voters (KIP-853).

        If the voters come from the config instead, all nodes have the same endpoints and no update is needed.
        """
        quorum, own = self.quorum.state, Voter(self.key, self.addresses.own)
        recorded = quorum.voters.get(self.node_id)
        if quorum.history.latest_offset < 0 or not quorum.is_voter or recorded in (None, own):
            return
        assert recorded is not None
        if not recorded.endpoints and self.node_id in self._config.quorum_voters:
            return

        async def attempt(left_s: float) -> ErrorCode | None:
            if self.leader_id == self.node_id:
                answer = await self.quorum.submit_and_wait(UpdateVoterRequest(own, quorum.epoch))
                assert isinstance(answer, VoterChangeResponse)
                code = answer.error
            else:
                request = encode_voter_update(own, self.cluster_id, quorum.epoch)
                send = self.controller_client.send_to_leader
                response = await send(UPDATE_RAFT_VOTER, request, left_s, "controller")
                if response is None:
                    return None
                code = ErrorCode(response.error_code)
            return code if code in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND) else None

        await self.controller_client.until_answered(attempt, timeout_s)

    async def _send(self, to: int, request: Request) -> Response:
        api, message = encode_request(request, self.cluster_id, self.addresses.own)
        # A vote must not queue behind a fetch, which waits for new records.
        polls = isinstance(request, FetchRequest | FetchSnapshotRequest)
        peer = self.peers.get(to, "metadata" if polls else "quorum")
        response = await peer.send(api, message, self._config.controller_quorum_request_timeout_ms / 1000)
        self.addresses.learn(response.node_endpoints)
        return decode_response(request, response)

    def _gone(self, node_id: int) -> None:
        """Handle the probable end of the process of `node_id`."""
        if node_id == self.node_id:
            # Only the listener of this node has closed.
            return
        self.quorum.peer_gone(node_id)
        self.controller_loop.gone(node_id)
