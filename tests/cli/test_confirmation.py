"""Dangerous commands ask at a terminal, and name the cluster; scripts go on."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import PENSTOCK, WAIT_S, Command, run_here

pytestmark = pytest.mark.process


def at_terminal(broker: str, answer: str, *arguments: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run `penstock` with a terminal as standard input and error; its exit code, and what it says there."""
    controller, terminal = pty.openpty()
    try:
        os.write(controller, answer.encode())
        done = subprocess.run(
            [*PENSTOCK, *arguments],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            timeout=WAIT_S,
            env={**os.environ, **environment},
        )
        os.close(terminal)
        said = b""
        while True:
            try:
                part = os.read(controller, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            said += part
        return done.returncode, said.decode()
    finally:
        os.close(controller)


@pytest.fixture
def prod(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PENSTOCK_PROFILES", str(tmp_path / "profiles.json"))
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    assert run_here("profile", "add", "prod", "--bootstrap", broker) == 0
    return {"PENSTOCK_PROFILES": str(tmp_path / "profiles.json"), "PENSTOCK_PROFILE": "prod"}


@pytest.mark.parametrize(
    ("answer", "is_done"), [("n\n", False), ("\n", False), ("\x04", False), ("y\n", True)]
)
def test_deletion_of_a_topic_asks_and_names_the_profile(
    broker: str, prod: dict[str, str], answer: str, is_done: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_here("--profile", "prod", "topic", "create", "asked", "--if-not-exists") == 0
    code, said = at_terminal(broker, answer, "topic", "delete", "asked", environment=prod)
    assert f"Delete topic asked with all messages at prod ({broker})? [y/N]" in said
    capfd.readouterr()
    assert run_here("--profile", "prod", "topic", "list") == 0
    assert ("asked" not in capfd.readouterr().out) is is_done
    assert code == (0 if is_done else 1)
    assert ("nothing was changed" in said) is not is_done


def test_yes_does_not_ask(broker: str, prod: dict[str, str]) -> None:
    assert run_here("--profile", "prod", "topic", "create", "unasked") == 0
    code, said = at_terminal(broker, "", "topic", "delete", "unasked", "--yes", environment=prod)
    assert (code, "[y/N]" in said) == (0, False)


def test_groups_ask_too(broker: str, prod: dict[str, str], penstock: Command) -> None:
    assert penstock("produce", "asked-group", input="x\n").returncode == 0
    joined = penstock("consume", "asked-group", "--group", "asker", "--from-beginning", "-n", "1")
    assert joined.returncode == 0
    reset = ["group", "reset-offsets", "asker", "--to-earliest", "--execute"]
    code, said = at_terminal(broker, "n\n", *reset, environment=prod)
    assert code == 1 and f"Move group asker to these offsets at prod ({broker})?" in said
    code, said = at_terminal(broker, "y\n", *reset, environment=prod)
    assert code == 0
    code, said = at_terminal(broker, "n\n", "group", "delete", "asker", environment=prod)
    assert code == 1 and "Delete group asker with all committed offsets at prod" in said


def test_without_a_terminal_commands_go_on(penstock: Command) -> None:
    assert penstock("topic", "create", "script").returncode == 0
    assert penstock("topic", "delete", "script").returncode == 0


def test_consume_reports_at_a_terminal_that_it_waits(
    broker: str, prod: dict[str, str], penstock: Command
) -> None:
    assert penstock("topic", "create", "waited").returncode == 0
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [*PENSTOCK, "consume", "waited"],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, **prod},
    ) as process:
        try:
            said = b""
            while b"--from-beginning" not in said:
                said += os.read(controller, 1000)
            assert said.startswith(b"waiting for new messages; --from-beginning prints those before them")
        finally:
            process.kill()
    os.close(terminal)
    os.close(controller)
