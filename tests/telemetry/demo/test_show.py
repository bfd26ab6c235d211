"""The processes of the show: their commands and thresholds, and the message when one is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from penstock.cli.app import app
from penstock.telemetry.demo import show as show_module
from penstock.telemetry.demo.show import Setting, Show, ShowBroken
from penstock.telemetry.thresholds import load_thresholds


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("127.0.0.1:1", tmp_path, 2, 1, 30.0, 1, 2)


@pytest.fixture
def broken(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Iterator[Show]:
    """A show whose pipeline ends at once; brokers stand in for the others."""
    monkeypatch.setattr(show_module, "_run", lambda setting: ["telemetry", "run", "--shards=0"])
    for command in ("_simulate", "_serve", "_console"):
        monkeypatch.setattr(show_module, command, lambda setting: ["up", "--memory", "--port=0"])
    made = Show(setting)
    yield made
    made.stop()


@pytest.mark.parametrize("command", ["_simulate", "_run", "_serve"])
def test_the_command_line_takes_the_commands(setting: Setting, command: str) -> None:
    group, name, *arguments = getattr(show_module, command)(setting)
    found: Any = typer.main.get_command(app)
    chosen = found.commands[group].commands[name]
    reported = chosen.make_context(name, list(arguments)).params
    assert set(reported.values()) & {setting.bootstrap, str(setting.tables), setting.tables}


def test_the_console_shows_this_cluster_and_this_fleet(setting: Setting) -> None:
    name, *arguments = show_module._console(setting)
    found: Any = typer.main.get_command(app)
    given = found.commands[name].make_context(name, list(arguments)).params
    assert (given["data"], given["faults"]) == (str(setting.brokers), True)
    assert given["telemetry"] == setting.api_url
    assert setting.console_url == "http://127.0.0.1:8088/#/fleet"


@pytest.mark.process
def test_a_part_that_ends_early_is_named_with_its_last_output(broken: Show) -> None:
    broken.start_pipeline()
    broken.start_simulator()
    with pytest.raises(ShowBroken, match=r"the pipeline has ended \(exit code 2\): .*--shards.*pipeline.log"):
        while True:
            broken.check()
    assert broken.produced is None


@pytest.mark.process
def test_thresholds_of_the_show_are_valid(broken: Show) -> None:
    broken.start_pipeline()
    broken.start_simulator()
    reported = load_thresholds(broken.setting.thresholds.read_text())
    assert reported.silent.for_s < load_thresholds().silent.for_s
    assert reported.hot.excess_min_c == load_thresholds().hot.excess_min_c
