"""Our own broker, from this working tree, as users start it: `penstock up`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from lab.server import HOST, Server, free_port, free_ports
from lab.wan import Wan


def penstock(folder: Path, settings: Mapping[str, str], python: str = sys.executable) -> Server:
    """A broker whose data and log live in `folder`; its address is stated as Apache Kafka's is beside it.

    `python` is the interpreter of an environment that has the package.
    """
    port = free_port()
    stated = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}", **settings}
    command = [_executable(python), "up", "--port", str(port), "--data", str(folder / "data")]
    for key, value in stated.items():
        command += ["--set", f"{key}={value}"]
    return Server("penstock", port, command, folder / "penstock.log", _environment(python))


def far_penstock(folder: Path, settings: Mapping[str, str], wan: Wan) -> tuple[Server, str]:
    """A broker that other clusters reach over a long line, and its address there; clients are near it."""
    port, other = free_ports(2)
    far = wan.add(other)
    listeners = {
        "listeners": f"PLAINTEXT://{HOST}:{port},WAN://{HOST}:{other}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},WAN://{HOST}:{far}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,WAN:PLAINTEXT",
    }
    return penstock_node(folder, port, {**listeners, **settings}), f"{HOST}:{far}"


def penstock_node(
    folder: Path, port: int, properties: Mapping[str, str], python: str = sys.executable
) -> Server:
    """A broker of a cluster, by a file such as Apache Kafka's; `port` is where clients reach it.

    `python` is as for `penstock`.
    """
    configuration = folder / "server.properties"
    stated = {"log.dirs": str(folder / "data"), **properties}
    configuration.write_text("".join(f"{key}={value}\n" for key, value in stated.items()))
    command = [_executable(python), "up", "--config", str(configuration)]
    return Server("penstock", port, command, folder / "penstock.log", _environment(python))


def _environment(python: str) -> dict[str, str]:
    """Another environment runs the package that it has installed, whatever PYTHONPATH names for this one."""
    return {} if python == sys.executable else {"PYTHONPATH": ""}


def _executable(python: str) -> str:
    return str(Path(python).with_name("penstock"))
