"""The log events of a start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.app import start_report
from penstock.broker.app.start_report import log_start
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.storage.log import Log


class Logged:
    """The events, as (level, event, fields)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        for level in ("info", "warning"):
            monkeypatch.setattr(start_report.log, level, self._take(level))

    def _take(self, level: str) -> Any:
        return lambda event, **fields: self.events.append((level, event, fields))


def recovered(name: str, **found: Any) -> Any:
    counts: dict[str, Any] = {"bytes_cut": 0, "segments_dropped": 0, "corruption": [], "bytes_walked": 0}
    return SimpleNamespace(name=name, log=SimpleNamespace(recovery=SimpleNamespace(**{**counts, **found})))


def report(partitions: list[Any], config: BrokerConfig) -> None:
    log_start(
        config,
        cast(Partitions, partitions),
        cast(Log, recovered("metadata").log),
        address="127.0.0.1:9092",
        seconds=0.5,
    )


def test_a_log_that_was_cut_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Logged(monkeypatch)
    report([recovered("t-0"), recovered("t-1", bytes_cut=4, bytes_walked=100)], BrokerConfig())
    (_, first, cut), (_, second, started) = logged.events
    assert (first, cut["partition"], cut["bytes_cut"]) == ("recovered", "t-1", 4)
    assert (second, started["partitions"], started["clean"], started["bytes_cut"]) == ("started", 2, False, 4)


def test_a_clean_start_is_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Logged(monkeypatch)
    report([recovered("t-0")], BrokerConfig())
    ((_, event, fields),) = logged.events
    assert (event, fields["clean"], fields["seconds"]) == ("started", True, 0.5)


def test_settings_without_effect_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Logged(monkeypatch)
    config = BrokerConfig(
        {"min.insync.replicas": "1", "num.replica.alter.log.dirs.threads": "2"},
        dynamic_default={"min.insync.replicas": "2"},
    )
    report([], config)
    warned = {fields["name"]: fields["reason"] for level, _, fields in logged.events if level == "warning"}
    assert set(warned) == {"min.insync.replicas", "num.replica.alter.log.dirs.threads"}
    assert warned["min.insync.replicas"].startswith("the cluster has 2")
