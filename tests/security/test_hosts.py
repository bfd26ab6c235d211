"""Host headers: a browser sends the name of the page that it shows."""

from __future__ import annotations

import pytest

from penstock.security.hosts import host_name, is_local_host, is_own_host

LOCAL = ["localhost", "LOCALHOST:9404", "127.0.0.1:9404", "127.1.2.3", "[::1]:9404", ""]
REBOUND = [
    "evil.example",
    "evil.example:9404",
    "127.0.0.1.evil.example",
    "127.evil.example:80",
    "localhost.x",
]


@pytest.mark.parametrize("host", LOCAL)
def test_hosts_on_this_machine(host: str) -> None:
    assert is_local_host(host)
    assert is_own_host(host, ())


@pytest.mark.parametrize("host", REBOUND)
def test_names_of_other_pages(host: str) -> None:
    """`127.0.0.1.evil.example` resolves to whatever its owner wants."""
    assert not is_local_host(host)
    assert not is_own_host(host, ("own.example",))


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.1:8080", "[fe80::1]:9404"])
def test_addresses_are_own_and_not_local(host: str) -> None:
    assert not is_local_host(host)
    assert is_own_host(host, ())


def test_named_hosts_are_own() -> None:
    assert is_own_host("Own.Example:443", ("own.example",))
    assert host_name("[FE80::1]:80") == "fe80::1"
