"""Tokens of one login: renewed once for all connections, also while the provider is away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

pytest.importorskip("jwt")

from penstock.console.sso.flow import SsoFailed
from penstock.console.sso.provider import Answer, Provider, Refused
from penstock.console.sso.settings import SsoSettings
from penstock.console.sso.tokens import SsoTokens
from penstock.security.sasl_client import LoginFailed

SETTINGS = SsoSettings(issuer="https://login.example", client_id="c", console_url="https://c.example")


class _Provider:
    """Renews tokens as a test wants it."""

    settings = SETTINGS

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.error: SsoFailed | None = None

    def renew(self, refresh_token: str) -> Answer:
        self.renewed.append(refresh_token)
        if self.error is not None:
            raise self.error
        number = len(self.renewed) + 1
        return Answer(access_token=f"token-{number}", refresh_token=f"refresh-{number}", expires_in=100.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def provider() -> _Provider:
    return _Provider()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tokens_of(provider: _Provider, clock: Clock, refresh: str | None = "refresh-1") -> SsoTokens:
    answer = Answer(access_token="token-1", id_token="id", refresh_token=refresh, expires_in=100.0)
    claims: dict[str, Any] = {"sub": "alice"}
    return SsoTokens(cast(Provider, provider), answer, claims, now=clock)


def test_a_token_is_renewed_at_four_fifths_of_its_lifetime(provider: _Provider, clock: Clock) -> None:
    tokens = tokens_of(provider, clock)
    clock.now = 79.0
    assert tokens.current() == "token-1"
    clock.now = 80.0
    assert tokens.current() is None
    assert tokens.fetch() == "token-2"
    assert tokens.current() == "token-2"
    clock.now = 161.0
    assert tokens.fetch() == "token-3"
    assert provider.renewed == ["refresh-1", "refresh-2"]


def test_all_connections_share_one_renewal(provider: _Provider, clock: Clock) -> None:
    tokens = tokens_of(provider, clock)
    clock.now = 90.0
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: tokens.fetch(), range(8))) == {"token-2"}
    assert provider.renewed == ["refresh-1"]


def test_a_provider_that_is_away_is_asked_after_a_pause(provider: _Provider, clock: Clock) -> None:
    tokens = tokens_of(provider, clock)
    provider.error = SsoFailed("provider", "no answer")
    clock.now = 90.0
    assert tokens.fetch() == "token-1", "it is valid still"
    assert tokens.fetch() == "token-1"
    assert len(provider.renewed) == 1
    clock.now = 101.0
    with pytest.raises(LoginFailed):
        tokens.fetch()
    assert not tokens.is_over
    provider.error = None
    clock.now = 110.0
    assert tokens.fetch().startswith("token-")


def test_a_refusal_ends_the_login(provider: _Provider, clock: Clock) -> None:
    tokens = tokens_of(provider, clock)
    provider.error = Refused("provider", "invalid_grant")
    clock.now = 90.0
    for _ in range(2):
        with pytest.raises(LoginFailed):
            tokens.fetch()
    assert tokens.is_over
    assert len(provider.renewed) == 1


def test_without_a_refresh_token_a_token_is_used_to_its_end(provider: _Provider, clock: Clock) -> None:
    tokens = tokens_of(provider, clock, None)
    clock.now = 99.0
    assert (tokens.current(), tokens.is_over) == ("token-1", False)
    clock.now = 100.0
    assert (tokens.current(), tokens.is_over) == (None, True)


def test_a_token_that_brokers_refuse_ends_the_login(provider: _Provider, clock: Clock) -> None:
    tokens = tokens_of(provider, clock)
    tokens.discard()
    assert tokens.is_over
    assert tokens.current() is None
