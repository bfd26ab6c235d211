"""The entry point: Ctrl-C when there is no command that could be interrupted, and the version."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from tests.cli.running import PENSTOCK, WAIT_S

pytestmark = pytest.mark.process


def hear_ctrl_c() -> None:
    """Tests that run in the background may have it ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_while_it_imports_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise ImportError('it went on')\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*PENSTOCK, "version"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=hear_ctrl_c,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("missing", "command"), [("typer", ("topic", "list")), ("uvloop", ("up", "--memory", "--port", "0"))]
)
def test_a_command_without_its_packages_names_the_remedy(
    missing: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    error = f"raise ModuleNotFoundError('No module', name={missing!r})"
    (tmp_path / f"{missing}.py").write_text(error)
    done = subprocess.run(
        [*PENSTOCK, *command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    remedy = "commands and brokers need `pip install penstock-mq`"
    said = f"penstock: the package {missing} is missing: {remedy}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@pytest.mark.parametrize(("before", "code"), [("", 130), ("trap '' INT;", 0)])
def test_ctrl_c_at_the_end_ends_the_command_silently_unless_it_is_ignored(before: str, code: int) -> None:
    """A process that was started with `nohup`, or by `&` in a script, ignores it."""
    program = (
        "import atexit, os, signal; from penstock.cli import main; "
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); main()"
    )
    done = subprocess.run(
        ["sh", "-c", f'{before} exec "$@"', "sh", sys.executable, "-c", program, "--version"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        preexec_fn=hear_ctrl_c,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(f"penstock {penstock.__version__} python ")


@pytest.mark.parametrize("library", ["obstore", "json"])
def test_a_command_with_an_object_store_ends_before_python_frees_its_modules(library: str) -> None:
    """A thread of the library that releases an object during that would abort the process."""
    program = (
        f"import sys, types; sys.modules.setdefault({library!r}, types.ModuleType({library!r}))\n"
        "class Freed:\n    def __del__(self): print('freed')\n"
        "freed = Freed()\n"
        "from penstock.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "topic", "--nonsense"], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 2
    assert "--nonsense" in done.stderr
    assert done.stdout == ("" if library == "obstore" else "freed\n")
