"""The smallest example: a broker, a producer and a consumer."""

from __future__ import annotations

import subprocess
import sys


def test_everything_that_is_sent_arrives() -> None:
    command = [sys.executable, "-m", "examples.live_traffic", "--seconds", "2", "--rate", "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    sent, received, failed = (int(part.split()[1]) for part in done.stdout.splitlines()[-1].split(", "))
    assert sent > 0
    assert received > 0
    assert failed == 0
