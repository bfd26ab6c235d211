"""From `make run` to the first rows in the table of samples: brokers, Spark and simulator from nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.table import Contender, Metric, Row, Values
from lab.home import require

TIMEOUT_S = 240
END_S = 180
LOOK_S = 0.05
ROUNDS = 5


def _start(contender: Contender, scale: float) -> Values:
    require("java")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        data = Path(folder) / "demo"
        command = [contender.python, "-P", "-m", "penstock", "telemetry", "demo", "--data", str(data)]
        began_s = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_environment(contender)
        )
        try:
            _wait_for_rows(process, data / "tables" / "samples" / "_delta_log")
            seconds = time.perf_counter() - began_s
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=END_S)
    return {"first rows": seconds}


def _environment(contender: Contender) -> dict[str, str]:
    """Another interpreter has a package of its own, and must not find the one that is measured here."""
    is_own = contender.python == sys.executable
    return {name: value for name, value in os.environ.items() if is_own or name != "PYTHONPATH"}


def _wait_for_rows(process: subprocess.Popen[str], log: Path) -> None:
    """The first entry of a Delta log makes the table, the second has its first rows."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"the demo has ended by itself, with {process.returncode}")
        if (log / f"{1:020}.json").exists():
            return
        time.sleep(LOOK_S)
    raise RuntimeError(f"there are no rows after {TIMEOUT_S} s")


ROWS = (
    Row(
        "pipeline-start",
        "`make run`, from the command to the first rows in the table of samples",
        (Metric("first rows", "s", False, limit=15),),
        _start,
        heavy=True,
        rounds=ROUNDS,
        brokers=3,
        alone="it measures the start of the pipeline, of which brokers are a part",
        runs_package=True,
        where="in the start of the JVM and in Spark's first plan (`python -X importtime` for the rest).",
    ),
)
