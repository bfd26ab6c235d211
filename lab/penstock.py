"""Our own broker, from this working tree, as users start it: `penstock up`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from lab.server import HOST, Server, free_port


def penstock(folder: Path, settings: Mapping[str, str]) -> Server:
    """A broker whose data and log live in `folder`; its address is stated as Apache Kafka's is beside it."""
    port = free_port()
    stated = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}", **settings}
    executable = Path(sys.executable).with_name("penstock")
    command = [str(executable), "up", "--port", str(port), "--data", str(folder / "data")]
    for key, value in stated.items():
        command += ["--set", f"{key}={value}"]
    return Server("penstock", port, command, folder / "penstock.log")
