"""The settings of a schema registry: credentials are never shown, and never sent in plain text."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidConfig
from penstock.registry.settings import registry_settings


def test_an_address_alone_is_enough() -> None:
    found = registry_settings({}, "http://registry.example:8081/apis/ccompat/v7/")
    assert (found.url, found.authorization) == ("http://registry.example:8081/apis/ccompat/v7", None)
    assert not found.is_read_only


@pytest.mark.parametrize(
    ("pairs", "header"),
    [
        ({"basic.auth.user.info": "ada:s3cret:x"}, "Basic YWRhOnMzY3JldDp4"),
        ({"bearer.auth.token": "t0ken"}, "Bearer t0ken"),
    ],
)
def test_credentials_are_a_header_and_never_shown(pairs: dict[str, str], header: str) -> None:
    settings = {**pairs, "schema.registry.url": "https://registry.example", "read.only": "true"}
    found = registry_settings(settings)
    assert (found.authorization, found.is_read_only) == (header, True)
    assert not [secret for secret in ("s3cret", "t0ken", "YWRh") if secret in repr(found)]


@pytest.mark.parametrize(
    ("pairs", "url", "reason"),
    [
        ({}, None, "schema.registry.url is missing"),
        ({}, "ftp://registry.example", "is not a URL"),
        ({}, "http://registry.example:port", "is not a URL"),
        ({}, "http://registry.example/?q=1", "is not a URL"),
        ({}, "http://ada:s3cret@registry.example", "set basic.auth.user.info in --schema-registry-config"),
        ({"basic.auth.user.info": "ada"}, "https://r.example", "is not USER:PASSWORD"),
        ({"bearer.auth.token": "a\r\nHost: x"}, "https://r.example", "is not a token"),
        ({"basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "https://r.example", "exclude"),
        ({"basic.auth.user.info": "ada:s3cret"}, "http://r.example", "unencrypted: use https"),
        ({"read.only": "yes"}, "https://r.example", "is neither true nor false"),
        ({"basic.auth.user": "ada"}, "https://r.example", "'basic.auth.user' is unknown"),
    ],
)
def test_errors_contain_no_secrets(pairs: dict[str, str], url: str | None, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason) as raised:
        registry_settings(pairs, url)
    assert "s3cret" not in str(raised.value)


def test_the_option_of_a_command_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"set basic\.auth\.user\.info in --registry-config$"):
        registry_settings({}, "http://ada:s3cret@registry.example", "--registry-config")


def test_loopback_may_get_credentials_without_tls() -> None:
    for url in ("http://127.0.0.1:8081", "http://localhost:8081", "http://[::1]:8081"):
        assert registry_settings({"basic.auth.user.info": "a:b"}, url).authorization is not None
