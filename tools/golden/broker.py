"""A single broker on the data directory that is kept, as a process of the version that writes it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.model.config.access_keys import STANDARD_AUTHORIZER

__all__ = ["CONFIGS", "SECURED", "running", "settings"]

_READY_S: Final = 60.0
_CLUSTER_ID: Final = "Z29sZGVuLWRhdGEtZGlyLQ"
#: Nothing in the directory may end with time: tests open it years later.
CONFIGS: Final[Mapping[str, str]] = {
    "node.id": "1",
    "penstock.cluster.id": _CLUSTER_ID,
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.retention.minutes": "2147483647",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "100",
    "auto.create.topics.enable": "false",
}
#: configs that the first versions did not know
SECURED: Final[Mapping[str, str]] = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transactional.id.expiration.ms": "2147483647",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}


def settings(data: Path, configs: Mapping[str, str], ports: tuple[int, int] = (0, 0)) -> dict[str, str]:
    """The configs of the broker of a data directory; other `ports` than those of its maker are fine."""
    client, internal = ports if all(ports) else _free_ports()
    return {
        **configs,
        "listeners": f"PLAINTEXT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}",
        "controller.quorum.voters": f"1@127.0.0.1:{internal}",
        "log.dirs": str(data),
    }


@contextmanager
def running(interpreter: str, data: Path, configs: Mapping[str, str]) -> Iterator[str]:
    """A broker of the environment of `interpreter`, until the end of the block; its address for clients."""
    ports = _free_ports()
    file = data.parent / "broker.yaml"
    file.write_text(json.dumps(settings(data, configs, ports)), encoding="utf-8")
    file.chmod(0o600)
    command = [interpreter, "-P", "-m", "penstock", "up", "--config", str(file)]
    with (
        (data.parent / "broker.log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("ready"):
                raise RuntimeError(f"the broker did not start: {(data.parent / 'broker.log').read_text()}")
            yield f"127.0.0.1:{ports[0]}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_READY_S)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
