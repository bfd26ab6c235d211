"""Clients of the lab without a library, against a broker in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.raw_client import FrameClient, RawClient
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages import encode_request

HOST = "127.0.0.1"
FRAME = b"".join(map(bytes, encode_request(API_VERSIONS, 0, 7, "lab", ApiVersionsRequest())))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker() as found:
        yield found


def test_pipelined_requests_are_answered_in_order(running: BrokerThread) -> None:
    request = ApiVersionsRequest(client_software_name="lab", client_software_version="1")
    with RawClient(running.bootstrap) as client:
        for version in (2, 3):
            client.send(API_VERSIONS, version, request)
        # Features are in version 3.
        first, second = client.receive(), client.receive()
    assert isinstance(first, ApiVersionsResponse) and not first.supported_features
    assert isinstance(second, ApiVersionsResponse) and second.supported_features


def test_a_frame_client_returns_whole_frames(running: BrokerThread) -> None:
    port = int(running.bootstrap.rpartition(":")[2])
    with FrameClient((HOST, port), 30) as client:
        client.send(FRAME + FRAME)
        first = client.receive()
        assert first == client.receive()
        assert first[:4] == (7).to_bytes(4, "big")


def test_a_closed_connection_is_an_error(running: BrokerThread) -> None:
    port = int(running.bootstrap.rpartition(":")[2])
    with FrameClient((HOST, port), 30) as client:
        client.send((1 << 30).to_bytes(4, "big"))
        with pytest.raises(ConnectionResetError):
            client.receive()
    with RawClient(running.bootstrap) as closed:
        closed.socket.sendall((1 << 30).to_bytes(4, "big"))
        assert closed.is_closed()
