"""Requests to the active controller: here, on another node, or while no leader is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.node.controller_client import ControllerClient, ControllerUnavailable
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode, StorageError
from penstock.net.peer_errors import PeerLost
from penstock.raft.messages import NO_NODE
from penstock.raft.state import Recovery
from penstock.wire.apis.alter_partition import ALTER_PARTITION, AlterPartitionRequest, AlterPartitionResponse

OWN, OTHER, THIRD = 1, 2, 3
#: longer than anything here takes
LONG_S = 60.0
Respond = Callable[[int], Any]


class Controllers:
    """The client of node 1, and what each node responds; a response may be an error to raise."""

    def __init__(self, leader: int, respond: Respond) -> None:
        state = SimpleNamespace(leader_id=leader, epoch=0, state=SimpleNamespace(recovery=Recovery.NONE))
        self.quorum = SimpleNamespace(state=state, failure=None)
        self.requests: list[int] = []
        self.requested = asyncio.Event()
        self._respond = respond
        peers = SimpleNamespace(get=lambda node, purpose: SimpleNamespace(send=self._sender(node)))
        service = SimpleNamespace(handle=self._sender(OWN))
        self.client = ControllerClient(
            BrokerConfig({"node.id": str(OWN), "controller.quorum.request.timeout.ms": "10"}),
            cast(Any, self.quorum),
            cast(Any, peers),
            cast(Any, service),
        )

    def _sender(self, node: int) -> Callable[..., Any]:
        async def send(*_: object) -> Any:
            self.requests.append(node)
            self.requested.set()
            response = self._respond(len(self.requests))
            if asyncio.isfuture(response):
                return await response
            if isinstance(response, Exception):
                raise response
            return response

        return send

    def elect(self, leader: int) -> None:
        self.quorum.state.leader_id = leader
        self.client.leader_changed()

    async def send(self, timeout_s: float = LONG_S, **options: Any) -> AlterPartitionResponse:
        return await self.client.send(ALTER_PARTITION, AlterPartitionRequest(), timeout_s, **options)


def test_the_active_controller_is_this_node() -> None:
    async def main() -> None:
        controllers = Controllers(OWN, lambda _: AlterPartitionResponse())
        assert (await controllers.send()).error_code == ErrorCode.NONE
        assert controllers.requests == [OWN]

    asyncio.run(main())


def test_a_retry_is_reported_if_the_first_request_may_still_be_executed() -> None:
    """The first request may be executed after the second, and the response is the second's."""

    async def main() -> None:
        controllers = Controllers(OTHER, lambda n: PeerLost("lost") if n == 1 else AlterPartitionResponse())
        retries: list[str] = []
        response = await controllers.send(on_unanswered=lambda: retries.append("again"))
        assert (response.error_code, retries) == (ErrorCode.NONE, ["again"])
        assert controllers.requests == [OTHER, OTHER]

    asyncio.run(main())


def test_a_node_that_no_longer_leads_is_not_the_last_one_to_respond() -> None:
    async def main() -> None:
        former = AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        controllers = Controllers(OTHER, lambda n: former if n == 1 else AlterPartitionResponse())
        sending = asyncio.create_task(controllers.send())
        await controllers.requested.wait()
        controllers.elect(THIRD)
        assert (await sending).error_code == ErrorCode.NONE
        assert controllers.requests == [OTHER, THIRD]

    asyncio.run(main())


def test_without_a_leader_a_request_waits_for_one() -> None:
    async def main() -> None:
        controllers = Controllers(NO_NODE, lambda _: AlterPartitionResponse())
        sending = asyncio.create_task(controllers.send())
        await asyncio.sleep(0)
        controllers.elect(OWN)
        assert (await sending).error_code == ErrorCode.NONE

    asyncio.run(main())


def test_without_a_leader_in_time_there_is_an_error() -> None:
    async def main() -> None:
        controllers = Controllers(NO_NODE, lambda _: AlterPartitionResponse())
        silence = r"no controller has responded in 0\.01 s: epoch 0 has no leader"
        with pytest.raises(ControllerUnavailable, match=silence):
            await controllers.send(0.01)
        controllers.quorum.failure = StorageError("the disk is gone")
        with pytest.raises(ControllerUnavailable, match="the disk is gone"):
            await controllers.send()

    asyncio.run(main())


def test_the_error_names_a_leader_that_accepts_no_requests() -> None:
    async def main() -> None:
        former = AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        controllers = Controllers(OTHER, lambda _: former)
        with pytest.raises(ControllerUnavailable, match=f"node {OTHER} leads epoch 0 and accepts"):
            await controllers.send(0.01)

    asyncio.run(main())


def test_a_request_that_must_not_run_twice_waits_until_another_node_leads() -> None:
    async def main() -> None:
        silence: asyncio.Future[AlterPartitionResponse] = asyncio.get_running_loop().create_future()
        controllers = Controllers(OTHER, lambda _: silence)
        request = AlterPartitionRequest()
        sending = asyncio.create_task(
            controllers.client.send_to_leader_once(ALTER_PARTITION, request, LONG_S, "forwarding")
        )
        await controllers.requested.wait()
        controllers.elect(THIRD)
        async with asyncio.timeout(LONG_S):
            assert await sending is None
        assert controllers.requests == [OTHER]

    asyncio.run(main())
