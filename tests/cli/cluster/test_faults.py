"""Faults of local brokers: states and signals of their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.faults import FaultFailed, LocalFaults
from penstock.cli.cluster.processes import Process, write_pid_file
from tests.waiting import eventually


@pytest.mark.process
def test_a_process_is_paused_and_resumed(tmp_path: Path) -> None:
    home = BrokerHome(tmp_path, 7)
    home.write({"node.id": "7"}, [])
    faults = LocalFaults(tmp_path)
    assert faults.brokers() == {7: "stopped"}
    with pytest.raises(FaultFailed, match="broker 7 does not run"):
        asyncio.run(faults.act(7, "pause"))
    with subprocess.Popen(["sleep", "60"]) as stand_in:
        try:
            write_pid_file(home.pid_file, process_of(stand_in.pid))
            assert faults.brokers() == {7: "running"}
            asyncio.run(faults.act(7, "pause"))
            eventually(lambda: faults.brokers() == {7: "paused"})
            asyncio.run(faults.act(7, "resume"))
            eventually(lambda: faults.brokers() == {7: "running"})
        finally:
            os.kill(stand_in.pid, signal.SIGCONT)
            stand_in.kill()


@pytest.mark.process
def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(FaultFailed, match="has no cluster"):
        asyncio.run(LocalFaults(tmp_path).act(7, "kill"))


def process_of(pid: int) -> Process:
    from penstock.cli.cluster.processes import _started

    started = _started(pid)
    assert started is not None
    return Process(pid, started)
