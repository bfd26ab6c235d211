"""Answers the questions of pods for names of services.

python -m lab.kubernetes.name_server KUBECONFIG ADDRESS

Services and endpoints are read twice a second. While the API does not answer, names stay as they were.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from lab.kubernetes.names import Names, known_names, respond

__all__ = ["NameServer", "reader"]

_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = 5.0
_PORT: Final = 53
_LARGEST: Final = 512


class NameServer:
    """A server of names on a UDP socket."""

    def __init__(self, read: Callable[[], Names], bound: socket.socket) -> None:
        self._read = read
        self._socket = bound
        self._names: Names = {}

    def refresh(self) -> None:
        """Read the names once."""
        try:
            self._names = self._read()
        except (OSError, ValueError) as error:
            print(f"names are not read: {error}", flush=True)

    def answer(self) -> None:
        """Wait for one query, and respond."""
        query, client = self._socket.recvfrom(_LARGEST)
        response = respond(query, self._names)
        if response is not None:
            self._socket.sendto(response, client)


def reader(access: Path) -> Callable[[], Names]:
    """Reads the names with the rights of a kubeconfig that `lab.kubernetes.configs` has written."""
    found = json.loads(access.read_text())
    cluster, token = found["clusters"][0]["cluster"], found["users"][0]["user"]["token"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])

    def items(path: str) -> Any:
        request = Request(cluster["server"] + path, headers={"Authorization": f"Bearer {token}"})
        with urlopen(request, timeout=_TIMEOUT_S, context=context) as response:
            return json.loads(response.read())["items"]

    return lambda: known_names(items("/api/v1/services"), items("/apis/discovery.k8s.io/v1/endpointslices"))


def main(access: Path, address: str) -> None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, _PORT))
    server = NameServer(reader(access), bound)

    def refresh() -> None:
        while True:
            server.refresh()
            time.sleep(_PAUSE_S)

    threading.Thread(target=refresh, daemon=True).start()
    while True:
        server.answer()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
