"""When the process that started the show is killed, all others end. After a clean end none is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.telemetry.demo.watchman import watching

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no watchman"),
]
#: starts one child that ends and one that does not, has both watched, says so and waits to be killed
PARENT = """
import subprocess, sys, time
from penstock.telemetry.demo.watchman import watching
with watching() as watchman:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    child = subprocess.Popen(sys.argv[1:], start_new_session=True)
    watchman.watch(ended.pid, child.pid)
    print("ready", flush=True)
    time.sleep(600)
"""
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER) as process:
        yield process
        process.kill()


def test_a_child_of_a_killed_process_ends() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", PARENT, *SLEEPER]
    # The child and the watchman hold the pipe as well: it ends when the last of them does.
    with subprocess.Popen(command, stdout=writing) as parent:
        os.close(writing)
        with os.fdopen(reading) as output:
            assert output.readline() == "ready\n"
            os.kill(parent.pid, signal.SIGKILL)
            assert output.read() == ""


def test_a_dismissed_watchman_kills_no_process(sleeper: subprocess.Popen[bytes]) -> None:
    with watching() as watchman:
        watchman.watch(sleeper.pid)
    # It has ended by now, and with it all that it would have done.
    assert sleeper.poll() is None
