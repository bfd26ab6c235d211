"""Committed offsets expire by the wall clock, so they stay while the clock is not trusted."""

from __future__ import annotations

from penstock.groups.settings import GroupSettings
from tests.groups.stage import Stage, topic_id
from tests.groups.test_deleted_topics import CHECK_MS, commit, offsets

DAY_MS = 86_400_000


def test_offsets_stay_while_the_clock_is_not_trusted() -> None:
    stage = Stage(GroupSettings(offsets_retention_ms=7 * DAY_MS), topics={"t": 1})
    trusted = False
    stage.env.may_expire = lambda: trusted
    commit(stage, 7, topic_id("t"))

    stage.sleep(8 * DAY_MS)
    assert offsets(stage, "t") == {"t": 7}

    trusted = True
    stage.sleep(CHECK_MS)
    assert offsets(stage, "t") == {"t": -1}
