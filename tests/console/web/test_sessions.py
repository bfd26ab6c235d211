"""Sessions: they expire, also while their streams are open, and one user cannot end those of others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.console.kafka import sampling, tailing
from penstock.console.kafka.cluster import Closed, Cluster, NotReachable
from penstock.console.kafka.tailing import tail
from penstock.console.web.live import ticks
from penstock.console.web.sessions import COOKIE, LoginNeeded, Session, Sessions
from penstock.net.client_security import ClientSecurity

_HOUR = 3600.0


class Clock:
    """Time in seconds, by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """Sessions of a cluster that accepts every password."""

    async def metadata(cluster: Cluster, topics: Any = None) -> None:
        pass

    monkeypatch.setattr(Cluster, "metadata", metadata)
    no_security = cast(ClientSecurity, None)
    return Sessions([("127.0.0.1", 1)], None, lambda user, password: no_security, 1.0, clock)


def logged_in(sessions: Sessions, user: str = "bob") -> str:
    return asyncio.run(sessions.log_in(user, "password", "127.0.0.1"))


def of(sessions: Sessions, token: str) -> Session:
    request: Any = SimpleNamespace(cookies={COOKIE: token}, url=SimpleNamespace(scheme="http"))
    return sessions.of(request)


def is_over(sessions: Sessions, token: str) -> bool:
    try:
        of(sessions, token)
    except LoginNeeded:
        return True
    return False


def test_a_session_ends_after_eight_hours_without_a_request(sessions: Sessions, clock: Clock) -> None:
    token = logged_in(sessions)
    session = of(sessions, token)
    clock.now += 8 * _HOUR
    assert of(sessions, token) is session
    clock.now += 8 * _HOUR + 1
    assert is_over(sessions, token)
    assert session.cluster.closed
    clock.now = 0.0
    assert is_over(sessions, token), "the token is forgotten"


def test_a_session_ends_a_day_after_its_login_though_it_is_used(sessions: Sessions, clock: Clock) -> None:
    token = logged_in(sessions)
    for _ in range(4):
        clock.now += 6 * _HOUR
        assert not is_over(sessions, token)
    clock.now += 1
    assert is_over(sessions, token)


def test_an_idle_session_is_closed_without_a_request(sessions: Sessions, clock: Clock) -> None:
    session = of(sessions, logged_in(sessions))
    clock.now += 8 * _HOUR + 1
    sessions.end_expired()
    assert session.cluster.closed


def test_many_logins_of_one_user_leave_others_their_sessions(sessions: Sessions, clock: Clock) -> None:
    alice = logged_in(sessions, "alice")
    tokens = []
    for _ in range(250):
        clock.now += 1
        tokens.append(logged_in(sessions))
    assert not is_over(sessions, alice)
    assert [is_over(sessions, token) for token in tokens] == [True] * 230 + [False] * 20


def test_all_users_together_have_a_limit(sessions: Sessions, clock: Clock) -> None:
    tokens = []
    for number in range(210):
        clock.now += 1
        tokens.append(logged_in(sessions, f"user-{number}"))
    assert [is_over(sessions, token) for token in tokens] == [True] * 10 + [False] * 200


def test_a_stream_of_ticks_ends_with_its_session(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(cluster: Any, now_s: float, before: Any = None) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(sampling, "take_sample", take)

    async def run() -> list[str]:
        session = of(sessions, await sessions.log_in("bob", "password", "127.0.0.1"))
        asyncio.get_running_loop().call_soon(session.close)
        async with asyncio.timeout(60):
            return [name async for name, _ in ticks(session.sampler)]

    assert asyncio.run(run()) == []


def test_a_tail_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has connections of its own, which must not be opened again with the password of the session."""
    cluster = Cluster([("127.0.0.1", 1)], timeout_s=1.0)

    async def layout_of(own: Cluster, topic: str) -> Any:
        own._client.peer(("127.0.0.1", 1))
        cluster.close()
        raise NotReachable("no broker")

    monkeypatch.setattr(tailing, "layout_of", layout_of)
    monkeypatch.setattr(tailing, "_RETRY_S", 0.0)

    async def run() -> list[list[str]]:
        async with asyncio.timeout(60):
            return [caught.errors async for caught in tail(cluster, "t", None, None)]

    assert asyncio.run(run()) == [["no broker"]]


def test_a_closed_cluster_opens_no_connection() -> None:
    cluster = Cluster([("127.0.0.1", 1)])
    sibling = cluster.sibling()
    cluster.close()
    for closed in (cluster, sibling, cluster.sibling()):
        with pytest.raises(Closed):
            asyncio.run(closed.metadata([]))
