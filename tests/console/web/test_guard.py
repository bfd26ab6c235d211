"""Requests that do not come from the console's own pages are refused."""

from __future__ import annotations

import pytest

from penstock.console.web.guard import SECURITY_HEADERS, refusal
from penstock.security.hosts import host_name

OWN = {"host": "127.0.0.1:8088"}
CHANGE = {**OWN, "x-penstock-console": "1"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8088", "localhost:1", "[::1]:8088", "LOCALHOST", "console.example"]
)
def test_hosts_that_are_served(host: str) -> None:
    assert refusal("GET", "/", {"host": host}, ["console.example"], "http") is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8088", "", "127.0.0.1.evil.example", "[::2]"])
def test_other_hosts_are_refused(host: str) -> None:
    """DNS rebinding: the name of an attacker's page resolves to this machine."""
    assert "does not serve the host" in str(refusal("GET", "/api/topics", {"host": host}, [], "http"))


@pytest.mark.parametrize(
    ("method", "headers", "reason"),
    [
        ("POST", OWN, "needs the header"),
        ("DELETE", {**OWN, "x-penstock-console": "0"}, "needs the header"),
        ("POST", {**CHANGE, "origin": "http://evil.example"}, "another origin"),
        ("POST", {**CHANGE, "origin": "null"}, "another origin"),
        ("POST", {**CHANGE, "origin": "https://127.0.0.1:8088"}, "another origin"),
        ("GET", {**OWN, "sec-fetch-site": "cross-site"}, "another site"),
        ("GET", {**OWN, "sec-fetch-site": "same-site"}, "another site"),
        ("GET", {**OWN, "origin": "http://evil.example"}, "another origin"),
    ],
)
def test_requests_of_other_pages_are_refused(method: str, headers: dict[str, str], reason: str) -> None:
    assert reason in str(refusal(method, "/api/topics", headers, [], "http"))


def test_own_requests_pass() -> None:
    own = {**CHANGE, "origin": "http://127.0.0.1:8088", "sec-fetch-site": "same-origin"}
    assert refusal("POST", "/api/topics", own, [], "http") is None
    assert refusal("GET", "/api/topics", OWN, [], "http") is None
    assert "only GET" in str(refusal("POST", "/", CHANGE, [], "http"))


def test_nothing_is_loaded_from_elsewhere_and_no_script_is_inline() -> None:
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy


def test_names_of_hosts() -> None:
    assert host_name("[::1]:80") == "::1"
    assert host_name("a.b") == "a.b"
