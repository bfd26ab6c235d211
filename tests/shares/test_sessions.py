"""Share sessions: the partitions that a response lists (KIP-932)."""

from __future__ import annotations

from penstock.shares.sessions import ShareSession, TopicIdPartition

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
