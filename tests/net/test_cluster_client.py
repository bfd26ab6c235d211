"""The client of a cluster: which broker gets a request, and what is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.addresses import Address
from penstock.net.client import Peer
from penstock.net.cluster_client import ClusterClient
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRefused, PeerRejected
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.metadata import MetadataResponse, MetadataResponseBroker

FIRST, SECOND, THIRD = ("a", 1), ("b", 2), ("c", 3)


class Scripted(ClusterClient):
    """Brokers that respond or fail as the test says; `asked` has the addresses in order."""

    def __init__(self, fails: dict[Address, PeerGone], check: Callable[[], None] = lambda: None) -> None:
        super().__init__([FIRST, SECOND], "test", check=check)
        self.fails = fails
        self.asked: list[Address] = []

    async def send_to(self, address: Address, *_: Any, answered: bool = True) -> Any:
        self.asked.append(address)
        if address in self.fails:
            raise self.fails[address]
        return "response"

    def request(self, *, repeats: bool = True) -> Any:
        return asyncio.run(self.send(API_VERSIONS, ApiVersionsRequest(), 1.0, repeats=repeats))


def test_the_broker_that_has_responded_is_the_next_to_be_asked() -> None:
    client = Scripted({FIRST: PeerLost("gone")})
    assert client.request() == client.request() == "response"
    assert client.asked == [FIRST, SECOND, SECOND]


def test_known_brokers_come_before_the_bootstrap_addresses() -> None:
    client = Scripted({})
    brokers = [MetadataResponseBroker(node_id=3, host="c", port=3)]
    client.view.update_brokers(MetadataResponse(brokers=brokers))
    assert client.candidates() == [THIRD, FIRST, SECOND]
    assert client.view.address(3) == THIRD
    assert client.view.address(4) is None


def test_a_request_that_may_have_been_carried_out_is_not_repeated() -> None:
    client = Scripted({FIRST: PeerLost("gone")})
    with pytest.raises(PeerLost, match="gone"):
        client.request(repeats=False)
    assert client.asked == [FIRST]


def test_a_request_that_was_never_sent_goes_to_the_next_broker() -> None:
    client = Scripted({FIRST: PeerRefused("refused")})
    assert client.request(repeats=False) == "response"


def test_a_refused_login_is_not_tried_at_other_brokers() -> None:
    client = Scripted({FIRST: PeerRejected("wrong password")})
    with pytest.raises(PeerRejected, match="wrong password"):
        client.request()
    assert client.asked == [FIRST]


def test_the_last_failure_is_raised_if_no_broker_responds() -> None:
    client = Scripted({FIRST: PeerLost("first"), SECOND: PeerRefused("second")})
    with pytest.raises(PeerRefused, match="second"):
        client.request()


def test_requests_to_a_broker_share_a_connection_until_it_is_closed() -> None:
    async def peers() -> tuple[Peer, Peer, Peer]:
        client = ClusterClient([FIRST], "test")
        first, same = client.peer(FIRST), client.peer(FIRST)
        client.close()
        return first, same, client.peer(FIRST)

    first, same, other = asyncio.run(peers())
    assert first is same
    assert other is not first


def test_the_check_of_the_owner_comes_before_each_request() -> None:
    def refuse() -> None:
        raise RuntimeError("the session has ended")

    client = ClusterClient([FIRST], "test", check=refuse)
    with pytest.raises(RuntimeError, match="session"):
        asyncio.run(client.send(API_VERSIONS, ApiVersionsRequest(), 1.0))
