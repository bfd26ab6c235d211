"""The cost of three Python processes that only pass on the messages of three brokers.

A message takes the path of a record with three replicas. A client sends it to one process, which appends it
to a file and sends it to the other two. They append it and respond. With both responses the first process
acknowledges the message to the client, and sends it as the response to the client's waiting fetch. No message
is parsed, checked or stored in memory. So this is the least cost of any broker in Python for the same number
of single messages.

`python -m bench.relay FILE PORT [PORT OF ANOTHER...]` is one of the three; `cores` starts them all.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

from bench.process import cpu_seconds
from lab.server import HOST, free_ports

PROCESSES = 3
PATIENCE_S = 10.0
SIZE = 200
"""Of every message: about a record of 100 bytes in a Produce, and not less than a Fetch."""
#: the kinds of messages; the first byte has the kind
CLIENT, REPLICA, PRODUCE, COPY, COPIED, PRODUCED, RECORD, MORE = (bytes([kind]) * SIZE for kind in range(8))


class Relay:
    """The shared state of the connections of one process."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.buffer = memoryview(bytearray(64 << 10))
        self._replicas: list[socket.socket] = []
        self._client: socket.socket
        self._copies = 0

    def received(self, message: memoryview, sender: socket.socket) -> None:
        kind = message[0]
        if kind == PRODUCE[0]:
            os.write(self._file, message)
            for replica in self._replicas:
                replica.send(COPY)
        elif kind == COPY[0]:
            os.write(self._file, message)
            sender.send(COPIED)
        elif kind == COPIED[0]:
            self._copies += 1
            if self._copies % len(self._replicas) == 0:
                self._client.send(PRODUCED)
                self._client.send(RECORD)
        elif kind == REPLICA[0]:
            self._replicas.append(sender)
        elif kind == CLIENT[0]:
            self._client = sender


class Connection(asyncio.BufferedProtocol):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.socket: socket.socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # As in Penstock: bytes are written to the socket at once.
        self.socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))

    def connection_lost(self, exc: Exception | None) -> None:
        self.socket.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._relay.buffer

    def buffer_updated(self, nbytes: int) -> None:
        # So small and far apart, none comes in pieces.
        for at in range(0, nbytes, SIZE):
            self._relay.received(self._relay.buffer[at : at + SIZE], self.socket)


async def _pass_on(file: Path, port: int, others: list[int]) -> None:
    loop = asyncio.get_running_loop()
    relay = Relay(file)
    server = await loop.create_server(lambda: Connection(relay), HOST, port)
    for other in others:
        while True:
            try:
                _, connection = await loop.create_connection(lambda: Connection(relay), HOST, other)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
        connection.socket.send(REPLICA)
    print("ready", flush=True)
    await server.serve_forever()


@contextmanager
def running() -> Iterator[tuple[Path, list[int], list[socket.socket]]]:
    """Where the three write, their process ids, and a client's connection to each."""
    ports = free_ports(PROCESSES)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-relay-") as folder, ExitStack() as stack:
        processes = []
        for port in ports:
            others = [str(other) for other in ports if other != port]
            command = [sys.executable, "-m", "bench.relay", f"{folder}/{port}", str(port), *others]
            processes.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)))
            stack.callback(processes[-1].kill)
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        clients = [stack.enter_context(socket.create_connection((HOST, port), PATIENCE_S)) for port in ports]
        for client in clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(CLIENT)
        yield Path(folder), [process.pid for process in processes], clients


def _hear(client: socket.socket, expected: int) -> None:
    """Fetch again after each record, until all have arrived."""
    waits_for = expected * 2 * SIZE
    while waits_for > 0:
        came = client.recv(64 << 10)
        waits_for -= len(came)
        if came[-1] == RECORD[0]:
            client.sendall(MORE)


def cores(rate: float, seconds: float) -> float:
    """The cores of the three processes for `rate` single messages per second."""
    each = int(rate * seconds / PROCESSES)
    with running() as (_, pids, clients), ThreadPoolExecutor(PROCESSES) as pool:
        heard = [pool.submit(_hear, client, each) for client in clients]
        before, began = cpu_seconds(*pids), time.perf_counter()
        for number in range(each * PROCESSES):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            clients[number % PROCESSES].sendall(PRODUCE)
        for one in heard:
            one.result()
        return (cpu_seconds(*pids) - before) / (time.perf_counter() - began)


if __name__ == "__main__":
    uvloop.run(_pass_on(Path(sys.argv[1]), int(sys.argv[2]), [int(port) for port in sys.argv[3:]]))
