from __future__ import annotations

from penstock.client.queues.configs import changes


def test_configs_are_set_only_where_they_differ() -> None:
    present: dict[str, tuple[str | None, int]] = {"limit": ("5", 5), "lock": ("30000", 8)}
    assert changes(present, {"limit": "5", "lock": "1000", "new": "x"}, {}) == {"lock": "1000", "new": "x"}


def test_an_initial_value_does_not_replace_one_of_the_group() -> None:
    present: dict[str, tuple[str | None, int]] = {"reset": ("latest", 5), "other": ("latest", 8)}
    assert changes(present, {}, {"reset": "earliest", "other": "earliest"}) == {"reset": "earliest"}
