"""Processes that outlive a command: no process is signalled that was not started here."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.cluster.processes import (
    Process,
    is_alive,
    read_pid_file,
    send_signal,
    spawn,
    uninterrupted,
    wait_for_end,
    write_pid_file,
)
from tests.cli.running import WAIT_S

pytestmark = pytest.mark.process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    """A broker that is never ready: it waits for a quorum that never comes."""
    config = tmp_path / "broker.yaml"
    config.write_text(
        f"log.dirs: {tmp_path}/data\nlisteners: PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0\n"
        "controller.quorum.voters: 1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3\n"
    )
    process, output = spawn(["up", "--config", str(config)], tmp_path / "log")
    yield process
    os.close(output)
    send_signal(process, signal.SIGKILL)
    os.waitpid(process.pid, 0)


def test_a_spawned_process_is_alive_in_a_session_of_its_own(sleeper: Process) -> None:
    assert is_alive(sleeper)
    assert os.getsid(sleeper.pid) == sleeper.pid
    assert send_signal(sleeper, signal.SIGKILL)
    # Dead though not collected: this test is its parent and has not waited.
    assert wait_for_end([sleeper], WAIT_S) == []
    assert not is_alive(sleeper)
    assert not send_signal(sleeper, signal.SIGKILL)


def test_a_spawned_process_keeps_no_descriptor_of_the_caller(tmp_path: Path) -> None:
    """A script that starts a cluster under `flock` would never give the lock back."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    process, output = spawn(["up", "--memory", "--port", "0"], tmp_path / "log")
    os.close(writing)
    with os.fdopen(output) as lines, os.fdopen(reading, "rb") as end:
        assert lines.readline().startswith("ready ")
        assert end.read() == b""
    assert is_alive(process)
    send_signal(process, signal.SIGKILL)
    os.waitpid(process.pid, 0)


def test_a_pid_that_another_process_has_now_is_left_alone(sleeper: Process) -> None:
    stale = Process(sleeper.pid, "another time")
    assert not is_alive(stale)
    assert not send_signal(stale, signal.SIGKILL)
    assert is_alive(sleeper)


def test_waiting_ends_with_its_time(sleeper: Process) -> None:
    began = time.monotonic()
    assert wait_for_end([sleeper], 0.05) == [sleeper]
    assert time.monotonic() - began < WAIT_S / 2


def test_output_comes_through_the_pipe_and_errors_to_the_log(tmp_path: Path) -> None:
    process, output = spawn(["version"], tmp_path / "log")
    with os.fdopen(output) as lines:
        assert lines.read().startswith("penstock ")
    os.waitpid(process.pid, 0)
    process, output = spawn(["nonsense"], tmp_path / "log")
    os.close(output)
    os.waitpid(process.pid, 0)
    assert "nonsense" in (tmp_path / "log").read_text()
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600, "other users could read it"


def test_settings_in_the_environment_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_RETENTION_HUORS", "1")  # `up` would refuse it
    monkeypatch.setenv("PENSTOCK_CONFIG", "nowhere")
    process, output = spawn(["up", "--memory", "--port", "0"], tmp_path / "log")
    with os.fdopen(output) as lines:
        assert lines.readline().startswith("ready ")
    send_signal(process, signal.SIGKILL)
    os.waitpid(process.pid, 0)


def test_pid_files(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    assert read_pid_file(path) is None
    write_pid_file(path, Process(7, "then"))
    assert read_pid_file(path) == Process(7, "then")
    for nonsense in ("", "7", "{}", '{"pid": "x", "started": "y"}'):
        path.write_text(nonsense)
        assert read_pid_file(path) is None


def test_this_very_process_has_one_start_time() -> None:
    code = "import os; from penstock.cli.cluster.processes import _started; print(_started(os.getppid()))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    assert is_alive(Process(os.getpid(), other.stdout.strip()))


def test_ctrl_c_right_after_the_signal_mask_leaves_no_signal_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_handler = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        before = set_handler(number, handler)
        if handler is signal.default_int_handler:
            signal.raise_signal(number)
        return before

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    outside = [set_handler(signal.SIGINT, signal.default_int_handler), *map(signal.getsignal, numbers[1:])]
    expected = [signal.getsignal(number) for number in numbers]
    monkeypatch.setattr(signal, "signal", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            pass
        assert [signal.getsignal(number) for number in numbers] == expected
    finally:
        for number, handler in zip(numbers, outside, strict=True):
            set_handler(number, handler)
