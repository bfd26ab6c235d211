"""The unit of systemd: its command exists, and systemd accepts it."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.command_lines import parsed

UNIT: Final = Path(__file__).parents[2] / "deploy/systemd/penstock.service"


def service() -> configparser.SectionProxy:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(UNIT.read_text())
    return found["Service"]


def test_the_command_exists() -> None:
    program, *words = shlex.split(service()["ExecStart"])
    assert program.endswith("/penstock")
    given = parsed(words)
    assert str(given["config"]) == "/etc/penstock/broker.yaml"
    assert given["log_format"] == "text"


def test_a_start_and_an_end_have_time() -> None:
    found = service()
    assert found["TimeoutStartSec"] == "infinity"
    assert int(found["TimeoutStopSec"]) >= 60
    assert found["KillSignal"] == "SIGTERM"


@pytest.mark.process
def test_systemd_accepts_it(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    # The program of the unit need not be installed here.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert ours == []
    assert done.returncode == 0, done.stderr
