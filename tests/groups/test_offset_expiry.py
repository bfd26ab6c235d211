"""Committed offsets expire by the wall clock, so they stay while the clock is not trusted."""

from __future__ import annotations

from penstock.groups.settings import GroupSettings
from tests.groups.offset_commits import CHECK_MS, commit, offsets
from tests.groups.shard_driver import ShardDriver, topic_id

DAY_MS = 86_400_000


def test_offsets_stay_while_the_clock_is_not_trusted() -> None:
    driver = ShardDriver(GroupSettings(offsets_retention_ms=7 * DAY_MS), topics={"t": 1})
    trusted = False
    driver.env.may_expire = lambda: trusted
    commit(driver, 7, topic_id("t"))

    driver.sleep(8 * DAY_MS)
    assert offsets(driver, "t") == {"t": 7}

    trusted = True
    driver.sleep(CHECK_MS)
    assert offsets(driver, "t") == {"t": -1}
