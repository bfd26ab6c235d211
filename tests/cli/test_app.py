"""The root command knows every sub-command, and imports only the one that is called."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from penstock.cli import commands
from penstock.cli.app import app

_PARTS_OF_OTHERS = {"link_ends", "quarantine"}  # of `penstock link` and `penstock log`


def test_every_module_of_commands_is_a_sub_command() -> None:
    root: Any = typer.main.get_command(app)
    assert (
        set(root.commands)
        == {each.name for each in pkgutil.iter_modules(commands.__path__)} - _PARTS_OF_OTHERS
    ), "each module of cli/commands is a command of cli/command_table.py"
    for name, command in root.commands.items():
        assert command.name == name and command.get_short_help_str()


@pytest.mark.process
def test_a_call_imports_one_sub_command() -> None:
    script = (
        "import sys; from penstock.cli.app import app; app(['version'], standalone_mode=False); "
        "print(*[name for name in sys.modules if name.startswith('penstock.cli.commands.')])"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "penstock.cli.commands.version"
