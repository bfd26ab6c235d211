"""The programs that `make` starts: --help prints the usage, and a wrong argument starts nothing."""

from __future__ import annotations

import importlib

import pytest

from tools.arguments import count_from_environment

PROGRAMS = [
    "bench.__main__",
    "bench.profile",
    "chaos.__main__",
    "conformance.__main__",
    "differential.__main__",
    "disasters.__main__",
    "tests.broker.fuzz",
]


def started(monkeypatch: pytest.MonkeyPatch, program: str, argument: str) -> object:
    """The exit code of a program that ends before it does anything."""
    monkeypatch.setattr("sys.argv", [program, argument])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(program).main()
    return ended.value.code


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_prints_the_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    assert started(monkeypatch, program, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m {program.removesuffix('.__main__')} ")


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unknown_argument_is_refused_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    assert started(monkeypatch, program, "--unknown") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m {program.removesuffix('.__main__')}: ")
    assert "--unknown" in line


def test_a_count_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUNDS", raising=False)
    assert count_from_environment("ROUNDS", 3) == 3
    for text, count in (("", 3), ("1", 1), ("12", 12)):
        monkeypatch.setenv("ROUNDS", text)
        assert count_from_environment("ROUNDS", 3) == count


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_a_count_that_is_none_ends_the_program_with_one_line(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUNDS", text)
    with pytest.raises(SystemExit) as end:
        count_from_environment("ROUNDS", 3)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"ROUNDS={text} is not a whole number of at least 1\n"
