"""`penstock table run` in this process, with the session of the tests instead of one of its own."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.cli.tables import running
from penstock.jobs import session

__all__ = ["run_in_session"]


class _Lent:
    """The session of the tests, which the command cannot stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None: ...


class _Start:
    """Stands for the start and the end of a JVM."""

    def __init__(self, master: str) -> None: ...

    def end(self, *, in_order: bool) -> bool:
        return False


def run_in_session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(session, "SessionStart", _Start)
    monkeypatch.setattr(running, "make_session", lambda *_: _Lent(spark))
