"""The commands on the pages exist, with the options that are shown, and the defaults are what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from penstock.cli.app import app
from penstock.model.config import BROKER_KEYS

COMMAND: Any = typer.main.get_command(app)
_ROOT_OPTIONS = {option for each in COMMAND.params if not each.is_flag for option in each.opts}
ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            joined = block.replace("\\\n", " ")
            for command in re.findall(r"^(?:.*\| )?penstock (.*)$", joined, re.MULTILINE):
                yield page.name, re.split(r" [|>] ", command)[0]
        # A command in running text may leave things out, but not where it shows options.
        for command in re.findall(r"`penstock ([a-z][^`\n]* --[^`\n]*)`", text):
            yield page.name, command


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_a_command_on_a_page_is_one(page: str, command: str) -> None:
    arguments = shlex.split(command.replace("…", ""), comments=True)
    found = COMMAND
    # Options of all commands have a value, and stand before the command.
    while arguments[0] in _ROOT_OPTIONS:
        arguments = arguments[2:]
    while hasattr(found, "commands"):
        name, *arguments = arguments
        assert name in found.commands, f"{page}: penstock {command}"
        found = found.commands[name]
    if "--help" not in arguments:
        found.make_context(name, [argument if argument != "N" else "1" for argument in arguments])


def test_timeouts_and_limits_have_the_documented_defaults() -> None:
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z.]+)` \| `([0-9]+)` \|", text, re.MULTILINE)
    assert len(rows) == 9
    assert {name: str(BROKER_KEYS[name].default) for name, _ in rows} == dict(rows)
