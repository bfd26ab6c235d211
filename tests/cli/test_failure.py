"""Failures are one line and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from penstock.cli.failure import Failure, guarded, misused
from penstock.model.errors import InvalidConfig, StorageError
from tests.cli.running import WAIT_S, run_here


def raises(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Failure("mend it"), 1, "penstock: mend it"),
        (InvalidConfig("retention.ms is wrong"), 2, "penstock: retention.ms is wrong"),
        (StorageError("the disk is full"), 1, "penstock: the disk is full"),
        (OSError("no such host"), 1, "penstock: no such host"),
        (
            typer.BadParameter("not a number"),
            2,
            "penstock: Invalid value: not a number (see `penstock --help`)",
        ),
        (KeyboardInterrupt(), 130, "penstock: interrupted"),
        (ZeroDivisionError("two\nlines"), 1, "penstock: ZeroDivisionError: two lines (a bug in penstock"),
    ],
)
def test_any_failure_is_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raises(error)) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(said)


def test_misuse_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: misused("give a name")) == 2
    assert capsys.readouterr().err == "penstock: give a name\n"


def test_exit_codes_of_commands_pass_through() -> None:
    assert guarded(lambda: None) == 0
    assert guarded(lambda: 3) == 3


@pytest.mark.process
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_seen_enough_is_no_failure(lines: int) -> None:
    """Whether the pipe is found closed while a command prints (in Typer's hands), or when it has ended."""
    code = f"""if True:
        import typer
        from penstock.cli.failure import guarded
        app = typer.Typer()
        @app.command()
        def command() -> None:
            input()
            for number in range({lines}):
                print(number)
            raise typer.Exit(3)
        raise SystemExit(guarded(lambda: app([], standalone_mode=False)))
    """
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(WAIT_S) == (3 if lines == 1 else 0)  # a verdict that was reached stands
        assert process.stderr.read() == ""


def test_other_exits_pass_through() -> None:
    with pytest.raises(SystemExit):
        guarded(raises(SystemExit(4)))


def test_debug_lets_a_bug_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        guarded(raises(ZeroDivisionError()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["topic", "create"], "Missing argument"),
        (["consume", "t", "--count", "x"], "--count"),
        (["consume", "t", "--count", "0"], "--count"),
        (["consume", "t", "--from-beginning", "--offset", "1"], "give one start only"),
        (["consume", "t", "--timestamp", "yesterday"], "neither milliseconds nor a time"),
        (["produce", "t", "--header", "x"], "is not KEY=VALUE"),
        (["produce", "t", "--key-separator", ""], "must not be empty"),
        (["produce", "t", "--key-separator", ":", "--format", "json"], "--format key-value"),
        (["produce", "t", "--idempotent", "--acks", "1"], "--acks all"),
        (["config", "describe"], "name a resource"),
        (["config", "set", "a=b", "--topic", "t", "--broker", "1"], "name a resource"),
        (["topic", "alter", "t"], "nothing to alter"),
        (["up", "--memory", "--data", "x"], "one of them"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--mount", "x", "--memory"], "--mount excludes"),
    ],
)
def test_wrong_command_lines(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here() == 2
    assert "Usage: penstock" in capsys.readouterr().err


def test_an_excerpt_of_a_file_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("num.partitions: 3\nfoo: [1, 2\nbar: x\n")
    assert run_here("up", "--config", str(file)) == 2
    first, line, caret = capsys.readouterr().err.splitlines()
    assert first.startswith(f"penstock: {file}:3:4: not valid YAML: expected ',' or ']'")
    assert (line, caret) == ("  bar: x", "     ^")
