"""Errors of requests to other brokers."""

from __future__ import annotations

import pytest

from penstock.net.peer_errors import PeerGone, PeerLost, PeerRefused, PeerTimedOut, is_refusal


@pytest.mark.parametrize(
    ("problem", "refused"),
    [
        ("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed", True),
        ("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route to host", False),
        ("[Errno 113] No route to host", False),
    ],
)
def test_a_host_with_several_addresses_refuses_only_if_all_of_them_do(problem: str, refused: bool) -> None:
    assert is_refusal(OSError(problem)) is refused


def test_one_refused_address_is_a_refusal() -> None:
    assert is_refusal(ConnectionRefusedError())


@pytest.mark.parametrize("kind", [PeerGone, PeerLost, PeerRefused, PeerTimedOut])
def test_each_caller_gets_an_error_of_its_own(kind: type[PeerGone]) -> None:
    error = kind("host:1: no response")
    copied = error.copy()
    assert copied is not error
    assert (type(copied), str(copied)) == (kind, str(error))
