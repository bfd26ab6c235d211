"""Share sessions: the partitions that a response lists (KIP-932)."""

from __future__ import annotations

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.shares import sessions
from penstock.shares.sessions import ShareSession, ShareSessions, TopicIdPartition

ONE, TWO = (TopicIdPartition(bytes(16), index) for index in range(2))


def test_partitions_with_news_are_listed() -> None:
    session = ShareSession(("group", "m"), object(), [ONE])
    assert session.mark_sent(ONE, is_due=False, has_records=False, has_error=False), "new in the session"
    assert not session.mark_sent(ONE, is_due=False, has_records=False, has_error=False)
    session.update([ONE, TWO], [])
    assert session.mark_sent(ONE, is_due=True, has_records=True, has_error=False)
    assert list(session.partitions) == [TWO, ONE], "the one with records is read last"
    assert session.mark_sent(TWO, is_due=False, has_records=False, has_error=False)


def test_a_partition_is_listed_once_more_after_its_error() -> None:
    session = ShareSession(("group", "m"), object(), [ONE])
    assert session.mark_sent(ONE, is_due=True, has_records=False, has_error=True)
    assert session.mark_sent(ONE, is_due=False, has_records=False, has_error=False)
    assert not session.mark_sent(ONE, is_due=False, has_records=False, has_error=False)


def _partitions(count: int) -> list[TopicIdPartition]:
    return [TopicIdPartition(bytes(16), index) for index in range(count)]


def test_the_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PARTITIONS_MAX", 100)
    monkeypatch.setattr(sessions, "_CONNECTION_PARTITIONS_MAX", 40)
    table = ShareSessions()
    for number in range(3):
        table.open("g", f"m{number}", connection=number, partitions=_partitions(30), sessions_max=10)
    with pytest.raises(ApiError) as refused:
        table.open("g", "m3", connection=3, partitions=_partitions(30), sessions_max=10)
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    with pytest.raises(ApiError):
        table.open("g", "m4", connection=0, partitions=_partitions(11), sessions_max=10)
    # A refused session takes no place, and a closed one makes room.
    assert len(table) == 3
    table.close_connection(0)
    table.open("g", "m5", connection=5, partitions=_partitions(30), sessions_max=10)


def test_a_session_that_grows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_CONNECTION_PARTITIONS_MAX", 40)
    session = ShareSession(("g", "m"), None, _partitions(30))
    session.update(_partitions(40), [])
    with pytest.raises(ApiError) as refused:
        session.update(_partitions(41), [])
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
