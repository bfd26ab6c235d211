"""Runs the code blocks of the documentation as a reader does that follows the pages in order.

Commands of `penstock` run in this process: the start of an interpreter per line would add up. A command that
runs until Ctrl-C is given an end by an option. `penstock up` is a process.
"""

from __future__ import annotations

import io
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.cli.running import run_here

__all__ = ["ROOT", "Block", "Shell", "blocks", "pages", "running_broker"]

ROOT: Final = Path(__file__).parents[2]
_WAIT_S: Final = 240
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_README_LINK: Final = re.compile(r"\]\((?P<page>[\w./-]+\.md)\)")
#: where the pages say that the broker is
_ADDRESS: Final = re.compile(r"\b(?:127\.0\.0\.1|localhost):9092\b")
#: a line that fails says so
_EXIT_CODE: Final = re.compile(r"# exit code (\d+)")
#: what brokers report while the machine of the test stands still, which no page shows
_STALL: Final = "the event loop was blocked for"
#: no group of a test waits for members that are never started
_QUICK: Final = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=100",
    "group.consumer.assignment.interval.ms=0",
    "group.share.min.heartbeat.interval.ms=100",
    "group.share.heartbeat.interval.ms=100",
)


class Block(NamedTuple):
    """A fenced block of code."""

    page: str
    language: str
    code: str


def pages() -> list[str]:
    """The pages in the order of the README's links to the documentation, the README first."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, documentation = readme.split("\n## Documentation\n")
    return ["README.md", *dict.fromkeys(_README_LINK.findall(documentation))]


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of a page in these languages, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(page, language, code) for language, code in _BLOCK.findall(text) if language in languages]


@contextmanager
def running_broker(arguments: Sequence[str]) -> Iterator[str]:
    """`penstock up` with these options, on any free port, in the current directory; ends as by Ctrl-C."""
    quick = [word for setting in _QUICK for word in ("--set", setting)]
    command = [sys.executable, "-m", "penstock", "up", *arguments, "--port", "0", *quick]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready "), process.stderr.read()
        yield ready.split()[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(_WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


class Shell:
    """Runs blocks. What it does not know how to run fails, unless `skipped` says that a line need not run."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        *,
        skipped: Callable[[str], bool] = lambda line: False,
        rewritten: Callable[[str], str] = lambda line: line,
        names: dict[str, Any] | None = None,
    ) -> None:
        """With `names` the blocks in Python share them; otherwise each has its own."""
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self._skipped = skipped
        self._rewritten = rewritten
        self._names = names
        self._bootstrap = ""
        self._expected = 0

    def use(self, bootstrap: str) -> None:
        """Let commands and code reach the broker at that address instead of the pages'."""
        self._bootstrap = bootstrap
        self._monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)

    def run(self, block: Block) -> str:
        """Run a block; its standard output."""
        if block.language == "python":
            with _ending(f"{block.page}: {block.code}"):
                exec(_ADDRESS.sub(self._bootstrap, block.code), self._names or {"__name__": "__main__"})
            return self._capfd.readouterr().out
        lines = block.code.replace("\\\n", " ").splitlines()
        return "".join(self.run_line(line, block.page) for line in lines if line.strip())

    def run_line(self, line: str, page: str) -> str:
        """Run one line: commands with pipes between them, and perhaps a file for the output."""
        if self._skipped(line):
            return ""
        stated = _EXIT_CODE.search(line)
        self._expected = int(stated[1]) if stated else 0
        words = _words(self._rewritten(_ADDRESS.sub(self._bootstrap, line)))
        target = None
        if ">" in words:
            *words, _, target = words
        output = ""
        for command in _stages(words):
            output = self._run_command(command, output, f"{page}: {line}")
        if target is not None:
            Path(target).write_text(output, encoding="utf-8")
            return ""
        return output

    def _run_command(self, words: list[str], given: str, what: str) -> str:
        if words[0] == "printf":
            return words[1].encode().decode("unicode_escape")
        assert words[0] == "penstock", f"nothing runs {words[0]}: {what}"
        if words[1] == "up":
            with running_broker(words[2:]):
                return ""
        # Without a pipe the reader answers questions, with yes.
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((given or "y\n").encode())))
        arguments = [*words[1:], *_end_of(words[1:])]
        with _ending(what):
            code = run_here(*arguments)
            output, errors = self._capfd.readouterr()
            while words[1] == "health" and _STALL in output:
                # Brokers forget it after ten seconds.
                time.sleep(1.0)
                code = run_here(*arguments)
                output, errors = self._capfd.readouterr()
        assert code == self._expected, f"{what}\n{output}{errors}"
        return output


@contextmanager
def _ending(what: str) -> Iterator[None]:
    """Fail if a command does not end: one that runs until Ctrl-C needs options of `_end_of`."""

    def fail(number: int, frame: object) -> None:
        pytest.fail(f"has not ended after {_WAIT_S} s: {what}")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(_WAIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    return list(lexer)


def _stages(words: list[str]) -> Iterator[list[str]]:
    stage: list[str] = []
    for word in words:
        if word == "|":
            yield stage
            stage = []
        else:
            stage.append(word)
    yield stage


def _end_of(arguments: Sequence[str]) -> list[str]:
    """Options that end a command which otherwise runs until Ctrl-C."""
    if "--rounds" in arguments or "--duration" in arguments:
        return []
    if arguments[0] == "consume" and not {"--exit-at-end", "--count"} & set(arguments):
        return ["--exit-at-end"]
    if arguments[:2] == ["telemetry", "simulate"]:
        return ["--hosts", "1", "--duration", "10", "--speed", "0"]
    if arguments[:2] == ["telemetry", "replay"]:
        return ["--speed", "0"]
    if arguments[:2] == ["telemetry", "host"]:
        return ["--rounds", "1"]
    return []
