"""Replaces the voter key of a node that returns with another one (KIP-853).

A node whose disk was wiped, or that has lost its quorum state, is no longer a voter: the voter set contains
the id of the old directory. Once the node has caught up, it requests two changes from the leader: RemoveVoter
for the old key and AddVoter for the new key. Majorities before and after each change overlap. Only a
registered broker sends these requests, so a second process with the id of a running broker cannot take its
vote. A voter that an operator has removed stays removed.
"""

from __future__ import annotations

import asyncio

from penstock.broker.base.logs import get_logger
from penstock.broker.node.addresses import NodeAddresses
from penstock.broker.node.controller_client import ControllerClient, ControllerUnavailable
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.model.errors import ErrorCode
from penstock.model.ids import format_topic_id
from penstock.raft.messages import (
    NO_DIRECTORY,
    AddVoterRequest,
    RemoveVoterRequest,
    Voter,
    VoterChangeResponse,
)
from penstock.raft.state import Recovery
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER, AddRaftVoterRequest
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequest

__all__ = ["Rejoining"]

log = get_logger("quorum")
_PATIENCE_S = 3600.0


class Rejoining:
    """Replaces this node's voter key in the background, from `start` to `stop`, if necessary."""

    def __init__(
        self,
        cluster_id: str,
        quorum: QuorumDriver,
        controller: ControllerClient,
        addresses: NodeAddresses,
        recovery: Recovery | None,
    ) -> None:
        """`recovery` is the state in which the quorum was opened."""
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._controller = controller
        self._addresses = addresses
        self._removed: bytes | None = None
        #: whether an operator has requested that this node becomes a voter, with `penstock quorum rejoin`
        self._joins = recovery == Recovery.REJOINING or (
            recovery == Recovery.FORGOTTEN and quorum.state.voters.get(quorum.state.key.id) is None
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        quorum = self._quorum.state
        if quorum.is_recovering or self._joins or self._old_voter() is not None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _old_voter(self) -> Voter | None:
        """The voter with this node's id and another directory id."""
        quorum = self._quorum.state
        voter = quorum.voters.get(quorum.key.id)
        return None if voter is None or (quorum.is_voter and not quorum.has_forgotten) else voter

    async def _run(self) -> None:
        try:
            await self._controller.until_answered(self._step, _PATIENCE_S)
        except ControllerUnavailable as e:
            log.error("voter_not_replaced", node_id=self._quorum.state.key.id, error=str(e))

    async def _step(self, left_s: float) -> bool | None:
        """One step of the replacement; True if it is complete, None if another step is needed."""
        quorum = self._quorum.state
        old = self._old_voter()
        if quorum.is_recovering and not (quorum.has_forgotten and quorum.caught_up and old is not None):
            return None
        if old is not None:
            if await self._remove(old, left_s) == ErrorCode.NONE:
                self._removed = old.key.directory_id
        elif (self._joins or self._removed is not None) and not quorum.is_voter:
            if await self._add(left_s) in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
                keys = (self._removed or NO_DIRECTORY, quorum.key.directory_id)
                directories = [format_topic_id(each) for each in keys]
                log.warning("voter_replaced", node_id=quorum.key.id, directory_ids=directories)
                return True
        else:
            return True
        return None

    async def _remove(self, old: Voter, left_s: float) -> ErrorCode | None:
        if self._controller.is_here:
            answer = await self._quorum.submit_and_wait(RemoveVoterRequest(old.key))
            assert isinstance(answer, VoterChangeResponse)
            return answer.error
        request = RemoveRaftVoterRequest(
            cluster_id=self._cluster_id,
            voter_id=old.key.id,
            voter_directory_id=old.key.directory_id,
        )
        send = self._controller.send_to_leader
        response = await send(REMOVE_RAFT_VOTER, request, left_s, "controller")
        return None if response is None else ErrorCode(response.error_code)

    async def _add(self, left_s: float) -> ErrorCode | None:
        key, endpoints = self._quorum.state.key, self._addresses.own
        if self._controller.is_here:
            answer = await self._quorum.submit_and_wait(AddVoterRequest(Voter(key, endpoints)))
            assert isinstance(answer, VoterChangeResponse)
            return answer.error
        request = AddRaftVoterRequest(
            cluster_id=self._cluster_id,
            timeout_ms=int(min(left_s, 5) * 1000),
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            listeners=[Endpoint(name=e.name, host=e.host, port=e.port) for e in endpoints],
        )
        send = self._controller.send_to_leader
        response = await send(ADD_RAFT_VOTER, request, left_s, "controller")
        return None if response is None else ErrorCode(response.error_code)
