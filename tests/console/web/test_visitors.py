"""The browser behind a request: X-Forwarded-For counts only as far as trusted proxies have written it."""

from __future__ import annotations

import pytest

from penstock.console.web.visitors import network_of, parse_networks, scheme_of, visitor_of

PROXIES = parse_networks(["10.0.0.0/8", "2001:db8::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "visitor"),
    [
        ("203.0.113.7", [], "203.0.113.7"),
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),
        ("127.0.0.1", ["198.51.100.1"], "127.0.0.1"),
        ("10.1.1.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.1.1", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        ("10.1.1.1", ["6.6.6.6", "198.51.100.1, 10.2.2.2"], "198.51.100.1"),
        ("10.1.1.1", ["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
        ("10.1.1.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.1.1.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("2001:db8::1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.1.1.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.1.1", ["6.6.6.6, unknown"], "10.1.1.1"),
        ("10.1.1.1", [""], "10.1.1.1"),
        ("testclient", ["198.51.100.1"], "testclient"),
    ],
)
def test_the_address_of_a_browser(peer: str, forwarded: list[str], visitor: str) -> None:
    assert visitor_of(peer, forwarded, PROXIES) == visitor


def test_by_default_no_proxy_is_trusted() -> None:
    assert visitor_of("127.0.0.1", ["198.51.100.1"], []) == "127.0.0.1"
    assert scheme_of("127.0.0.1", "http", "https", []) == "http"


@pytest.mark.parametrize(
    ("stated", "scheme"), [("https", "https"), ("http, https", "https"), (None, "http"), ("gopher", "http")]
)
def test_the_scheme_of_a_browser(stated: str | None, scheme: str) -> None:
    assert scheme_of("10.1.1.1", "http", stated, PROXIES) == scheme
    assert scheme_of("203.0.113.7", "http", stated, PROXIES) == "http"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_host_has_a_network_to_itself(address: str, network: str) -> None:
    assert network_of(address) == network
