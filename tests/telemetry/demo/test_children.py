from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.telemetry.demo.children import Child

pytestmark = pytest.mark.process

PATIENCE_S = 90.0


def test_a_child_that_ends_by_itself(tmp_path: Path) -> None:
    child = Child("asked", ["no-such-command"], tmp_path)
    # Before it was started there is nothing to stop.
    child.stop(signal.SIGTERM, PATIENCE_S)
    child.start()
    # What ends by itself is only waited for: the signal says nothing to it.
    child.stop(signal.SIGCONT, PATIENCE_S)
    assert child.exit_code == 2
    assert "no-such-command" in child.last_words()
    assert not child.last_words().startswith("penstock:")
    child.stop(signal.SIGTERM, PATIENCE_S)


def test_a_child_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    child = Child("broker", ["up", "--memory", "--port", "0"], tmp_path)
    child.start()
    while not child.output.read_text().startswith("ready "):
        assert child.exit_code is None, child.last_words()
        os.sched_yield()
    child.stop(signal.SIGCONT, 0.05)
    assert child.exit_code == -signal.SIGKILL


def test_a_child_without_output(tmp_path: Path) -> None:
    assert Child("silent", [], tmp_path).last_words() == "no output"


def test_processes_that_a_child_leaves_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    orphan = "import os, time; os.fork() or time.sleep(600)"
    child = Child("parent", [], tmp_path)
    monkeypatch.setattr(child, "_arguments", [sys.executable, "-c", orphan])
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **options: real(*args, pass_fds=[writing], **options)
    )
    child.start()
    os.close(writing)
    while child.exit_code is None:
        os.sched_yield()
    child.stop(signal.SIGTERM, PATIENCE_S)
    # The pipe ends when the last process that holds it does.
    assert os.read(reading, 1) == b""
    os.close(reading)
