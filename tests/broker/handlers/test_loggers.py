"""The levels of loggers, seen and set by clients."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from penstock.broker.base import logs
from penstock.model.errors import ErrorCode
from tests.broker.configs import APPEND, BROKER_LOGGER, DELETE, NODE, SET, SUBTRACT, alter, describe, value_of
from tests.broker.raw import RawClient

LOGGER_SOURCE = 6


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged at level info; everything is as it was afterwards."""
    monkeypatch.setattr(logs, "_levels", {logs.ROOT: "info"})
    monkeypatch.setattr(logs, "_take", None)
    monkeypatch.setattr(logs, "_lines", None)
    written = io.StringIO()
    logs.configure("info", "text", written)
    yield written
    for logger in logs._loggers.values():
        for level in logs.LEVELS:
            setattr(logger, level, logs._ignore)


def test_loggers_are_described_with_their_levels(client: RawClient, stream: io.StringIO) -> None:
    assert value_of(client, BROKER_LOGGER, NODE, "root") == ("INFO", LOGGER_SOURCE)
    assert value_of(client, BROKER_LOGGER, NODE, "flusher") == ("INFO", LOGGER_SOURCE)
    (only,) = describe(client, BROKER_LOGGER, NODE, ["flusher"]).configs
    assert (only.name, only.read_only, only.is_sensitive) == ("flusher", False, False)


@pytest.mark.parametrize(
    ("level", "shown", "written"),
    [
        ("TRACE", "DEBUG", 4),
        ("DEBUG", "DEBUG", 4),
        ("INFO", "INFO", 3),
        ("WARN", "WARN", 2),
        ("ERROR", "ERROR", 1),
        ("FATAL", "ERROR", 1),
    ],
)
def test_a_level_is_set_for_one_logger_and_taken_away(
    client: RawClient, stream: io.StringIO, level: str, shown: str, written: int
) -> None:
    log, other = logs.get_logger("flusher"), logs.get_logger("partitions")

    def lines() -> tuple[int, int]:
        stream.truncate(0)
        for logger in (log, other):
            for severity in logs.LEVELS:
                getattr(logger, severity)("an_event")
        text = stream.getvalue()
        return text.count("component=flusher event=an_event"), text.count(
            "component=partitions event=an_event"
        )

    assert alter(client, BROKER_LOGGER, NODE, ("flusher", SET, level)) == (ErrorCode.NONE, None)
    assert value_of(client, BROKER_LOGGER, NODE, "flusher")[0] == shown
    assert lines() == (written, 3)
    assert alter(client, BROKER_LOGGER, NODE, ("flusher", DELETE, None)) == (ErrorCode.NONE, None)
    assert lines() == (3, 3)


def test_the_level_of_the_root_holds_for_all_without_their_own(
    client: RawClient, stream: io.StringIO
) -> None:
    assert alter(client, BROKER_LOGGER, NODE, ("flusher", SET, "DEBUG"), ("root", SET, "ERROR"))[0] == 0
    assert value_of(client, BROKER_LOGGER, NODE, "partitions")[0] == "ERROR"
    assert value_of(client, BROKER_LOGGER, NODE, "flusher")[0] == "DEBUG"


@pytest.mark.parametrize(
    ("node", "alteration", "code"),
    [
        (NODE, ("flusher", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (NODE, ("flusher", SET, None), ErrorCode.INVALID_CONFIG),
        (NODE, ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (NODE, ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (NODE, ("flusher", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (NODE, ("flusher", SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST),
        ("999", ("flusher", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", ("flusher", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_alterations_change_nothing(
    client: RawClient,
    stream: io.StringIO,
    node: str,
    alteration: tuple[str, int, str | None],
    code: ErrorCode,
) -> None:
    assert alter(client, BROKER_LOGGER, node, ("partitions", SET, "DEBUG"), alteration)[0] == code
    assert value_of(client, BROKER_LOGGER, NODE, "partitions")[0] == "INFO"


def test_a_mere_check_changes_nothing(client: RawClient, stream: io.StringIO) -> None:
    assert alter(client, BROKER_LOGGER, NODE, ("flusher", SET, "DEBUG"), validate_only=True)[0] == 0
    assert value_of(client, BROKER_LOGGER, NODE, "flusher")[0] == "INFO"
