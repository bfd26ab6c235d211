"""Options that several commands share."""

from __future__ import annotations

import pytest

from tests.cli.running import run_here


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e300", "0", "soon"])
def test_invalid_timeouts_are_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("cluster", "status", "--timeout", seconds) == 2
    assert "--timeout" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["cluster", "status"], ["topic", "list"], ["consume", "orders"]])
@pytest.mark.parametrize("address", ["nohost", ":9092", "host:", "host:99999", "a:1,b"])
def test_an_address_without_host_or_port_is_refused_at_once(
    command: list[str], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(*command, "--bootstrap", address) == 2
    assert "is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [70, 140])
def test_help_is_as_wide_as_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run_here("consume", "--help") == 0
    # Examples are copied, so they are not divided.
    described, _, _ = capsys.readouterr().out.partition("Examples:")
    widest = max(map(len, described.splitlines()))
    assert columns - 20 < widest <= columns
