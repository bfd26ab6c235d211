"""Faults of local brokers: states and signals of their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.faults import FaultFailed, LocalFaults
from penstock.cli.cluster.listening import free_port
from penstock.cli.cluster.processes import Process, write_pid_file
from penstock.cli.cluster.relay import Route
from penstock.cli.cluster.relay_home import RelayHome
from tests.waiting import eventually


@pytest.mark.process
def test_a_process_is_paused_and_resumed(tmp_path: Path) -> None:
    home = BrokerHome(tmp_path, 7)
    home.write({"node.id": "7"}, [])
    faults = LocalFaults(tmp_path)
    assert faults.brokers() == {7: ("stopped", ("start",))}
    with pytest.raises(FaultFailed, match="broker 7 does not run"):
        asyncio.run(faults.act(7, "pause"))
    with subprocess.Popen(["sleep", "60"]) as stand_in:
        try:
            write_pid_file(home.pid_file, process_of(stand_in.pid))
            assert faults.brokers() == {7: ("running", ("pause", "stop", "kill"))}
            asyncio.run(faults.act(7, "pause"))
            eventually(lambda: faults.brokers()[7].state == "paused")
            asyncio.run(faults.act(7, "resume"))
            eventually(lambda: faults.brokers()[7].state == "running")
        finally:
            os.kill(stand_in.pid, signal.SIGCONT)
            stand_in.kill()


@pytest.mark.process
def test_a_failed_command_gives_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FaultFailed, match="has no cluster"):
        asyncio.run(LocalFaults(tmp_path).act(7, "kill"))


@pytest.mark.process
def test_a_broker_behind_relays_is_cut_off_and_reconnected(tmp_path: Path) -> None:
    """The relays run as a process; a socket of this test stands in for the broker's listener."""
    home = BrokerHome(tmp_path, 7)
    home.write({"node.id": "7"}, [])
    write_pid_file(home.pid_file, process_of(os.getpid()))
    faults, relays = LocalFaults(tmp_path), RelayHome(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = free_port("127.0.0.1", 0, set())
        relays.create([Route(7, "127.0.0.1", port, listener.getsockname()[1])])
        assert faults.brokers()[7] == ("running", ("cut off", "pause", "stop", "kill"))
        with pytest.raises(FaultFailed, match="do not run"):
            asyncio.run(faults.act(7, "cut off"))
        relays.start()
        try:
            with socket.create_connection(("127.0.0.1", port)) as client:
                accepted, _ = listener.accept()
                with accepted:
                    asyncio.run(faults.act(7, "cut off"))
                    assert faults.brokers()[7] == ("cut off", ("reconnect", "kill"))
                    client.settimeout(0.2)
                    accepted.settimeout(0.2)
                    eventually(lambda: not echoes(client, accepted))
                    asyncio.run(faults.act(7, "reconnect"))
                    assert faults.brokers()[7].state == "running"
                    eventually(lambda: echoes(client, accepted))
        finally:
            relays.stop()
    assert relays.process() is None


def echoes(client: socket.socket, server: socket.socket) -> bool:
    """Whether a byte arrives at the server in time."""
    client.send(b"x")
    try:
        return bool(server.recv(1000))
    except TimeoutError:
        return False


def process_of(pid: int) -> Process:
    from penstock.cli.cluster.processes import _started

    started = _started(pid)
    assert started is not None
    return Process(pid, started)
