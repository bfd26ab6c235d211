from __future__ import annotations

from disasters.table import ALL, HARMLESS


def test_every_name_is_used_once() -> None:
    assert len({disaster.name for disaster in ALL}) == len(ALL)


def test_every_row_of_the_table_has_a_disaster_and_at_least_forty_lost_nothing() -> None:
    assert {disaster.row for disaster in ALL} == set(range(24))
    assert len(HARMLESS) >= 40
