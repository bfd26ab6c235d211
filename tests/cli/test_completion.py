"""Shell completion: scripts, words that bash has split, names from a broker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.cli.app import app
from penstock.cli.completion import prepare_completion, rejoined
from tests.cli.running import WAIT_S, Command


@pytest.mark.parametrize(
    ("words", "current", "expected"),
    [
        ("penstock consume or", 2, (["penstock", "consume", "or"], 2)),
        (
            "penstock consume -b localhost : 9092 or",
            6,
            (["penstock", "consume", "-b", "localhost:9092", "or"], 4),
        ),
        ("penstock up --set a.b = 5 --m", 6, (["penstock", "up", "--set", "a.b=5", "--m"], 4)),
        ("penstock produce t -K : -p", 5, (["penstock", "produce", "t", "-K", ":", "-p"], 5)),
    ],
)
def test_words_that_bash_has_split_are_joined(
    words: str, current: int, expected: tuple[list[str], int]
) -> None:
    assert rejoined(words.split(), current) == expected


def test_without_a_completing_shell_nothing_changes() -> None:
    environment = {"COMP_WORDS": "a\n=\nb"}
    prepare_completion(environment)
    assert environment == {"COMP_WORDS": "a\n=\nb"}


def completed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], broker: str, *words: str
) -> list[str]:
    """The completions of the last of `words` in bash."""
    environment = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(("penstock", *words)),
        "COMP_CWORD": str(len(words)),
    }
    prepare_completion(environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker)
    with pytest.raises(SystemExit):
        app(prog_name="penstock", standalone_mode=False)
    output, errors = capfd.readouterr()
    assert errors == ""
    return output.split()


def test_topics_and_groups_come_from_the_broker(
    penstock: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], broker: str
) -> None:
    # Longer than at the Tab key: the broker may have to wait for the processor.
    monkeypatch.setattr("penstock.cli.completion._ANSWER_S", 60.0)
    penstock("topic", "create", "completed-1", "completed-2")
    penstock("consume", "completed-1", "--group", "completed-group", "--exit-at-end")
    host, port = broker.split(":")
    topics = completed(monkeypatch, capfd, "127.0.0.1:1", "consume", "-b", host, ":", port, "completed-")
    assert topics == ["completed-1", "completed-2"]
    assert completed(monkeypatch, capfd, broker, "group", "describe", "completed-") == ["completed-group"]


def test_without_a_broker_nothing_is_completed_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capfd, "127.0.0.1:1", "topic", "describe", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_the_shell_that_the_user_has(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", undetected)
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["--show-completion"], prog_name="penstock")
    assert done.exit_code == 0
    assert f"_PENSTOCK_COMPLETE=complete_{shell}" in done.stdout


@pytest.mark.process
def test_an_unknown_shell_is_reported_in_one_line() -> None:
    program = (
        "import shellingham; shellingham.detect_shell = lambda: ('tcsh', ''); "
        "from penstock.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "--install-completion"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: tcsh has no completion: set SHELL to one of bash, zsh,")


def undetected() -> tuple[str, str]:
    import shellingham

    raise shellingham.ShellDetectionFailure
