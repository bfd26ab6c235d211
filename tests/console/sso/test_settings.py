"""Settings of single sign-on: what is missing, unknown or not safe is named."""

from __future__ import annotations

import pytest

from penstock.console.sso.settings import is_safe_url, sso_settings
from penstock.model.errors import InvalidConfig

GIVEN = {"issuer": "https://login.example", "client.id": "c", "console.url": "https://console.example/"}


def test_defaults() -> None:
    found = sso_settings(GIVEN)
    assert found.redirect_uri == "https://console.example/sso/callback"
    assert (found.scope, found.token, found.client_secret) == ("openid profile", "access", "")
    assert found.is_secure


def test_the_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(sso_settings({**GIVEN, "client.secret": "s3cret"}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": ""}, "issuer is missing"),
        ({"client.id": " "}, "client.id is missing"),
        ({"console.url": ""}, "console.url is missing"),
        ({"client_secret": "x"}, "'client_secret' is unknown"),
        ({"issuer": "http://login.example"}, "issuer .* must be an https URL"),
        ({"console.url": "http://console.example"}, "console.url .* must be an https URL"),
        ({"console.url": "https://console.example/?x=1"}, "console.url .* must be an https URL"),
        ({"scope": "profile"}, "needs openid"),
        ({"token": "refresh"}, "neither access nor id"),
    ],
)
def test_settings_that_are_wrong(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        sso_settings({**GIVEN, **changes})


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://login.example/x?y=1", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://localhost/x", True),
        ("http://[::1]:8080/x", True),
        ("http://login.example/x", False),
        ("http://127.0.0.1.evil.example/x", False),
        ("https://user@login.example/x", False),
        ("https://login.example/#x", False),
        ("javascript:alert(1)", False),
        ("https://", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_addresses_that_are_safe(url: str, is_safe: bool) -> None:
    assert is_safe_url(url) is is_safe
