"""Clients that try to grow a broker's metrics: `python -m tests.broker.monitoring.hostile 100000`.

Each attack chooses as many names as it may: client ids, client software, groups, topics, and client instances
that push metrics. Scrapers connect and never read. The page must keep its size, the memory must stay bounded,
and the broker must serve.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lab.penstock import penstock
from lab.raw_client import FrameClient
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.get_telemetry_subscriptions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
)
from penstock.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from penstock.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest
from penstock.wire.messages import encode_request
from penstock.wire.schema import Struct
from tests.broker.monitoring.scrapes import Scraped, get

HOST = "127.0.0.1"
#: requests that are sent before their responses are read
_PIPELINED = 100
_TOPICS_PER_REQUEST = 20
#: scrapers that never read: more than the port takes
_SCRAPERS = 40
_ADMISSION_S = 60


class Stream(FrameClient):
    """A connection whose responses are only counted."""

    def __init__(self, port: int) -> None:
        super().__init__((HOST, port), 30)

    def send_all(self, frames: Iterator[bytes]) -> None:
        """Send all frames and read as many responses."""
        block: list[bytes] = []
        for frame in frames:
            block.append(frame)
            if len(block) == _PIPELINED:
                self._count(block)
                block = []
        self._count(block)

    def _count(self, block: list[bytes]) -> None:
        self.send(b"".join(block))
        for _ in block:
            self.receive()


def frame(api: Api[Any, Any], version: int, client_id: str, request: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(api, version, 1, client_id, request)))  # type: ignore[arg-type]


def client_ids(count: int) -> Iterator[bytes]:
    for number in range(count):
        software = ApiVersionsRequest(
            client_software_name=f"software-{number}", client_software_version=f"{number}"
        )
        yield frame(API_VERSIONS, 3, f"client-{number}", software)


def groups(count: int) -> Iterator[bytes]:
    for number in range(count // 2):
        yield frame(HEARTBEAT, 3, "g", HeartbeatRequest(group_id=f"group-{number}", member_id=f"{number}"))
        yield frame(OFFSET_FETCH, 5, "g", OffsetFetchRequest(group_id=f"group-{number}", topics=None))


def instances(count: int) -> Iterator[bytes]:
    for number in range(1, count + 1):
        request = GetTelemetrySubscriptionsRequest(client_instance_id=number.to_bytes(16, "big"))
        yield frame(GET_TELEMETRY_SUBSCRIPTIONS, 0, f"client-{number}", request)


def topics(count: int) -> Iterator[bytes]:
    """Topics that are created and deleted in a loop."""
    for start in range(0, count, _TOPICS_PER_REQUEST):
        names = [f"topic-{number}" for number in range(start, min(count, start + _TOPICS_PER_REQUEST))]
        creation = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names],
            timeout_ms=30_000,
        )
        yield frame(CREATE_TOPICS, 4, "t", creation)
        yield frame(DELETE_TOPICS, 4, "t", DeleteTopicsRequest(topic_names=names, timeout_ms=30_000))


class Size(NamedTuple):
    """What an attack may have grown."""

    samples: int
    resident_bytes: int


def scraped(port: int) -> tuple[Size, Scraped]:
    status, text, _ = get(port, "/metrics")
    assert status == 200, text
    page = Scraped(text)
    return Size(len(page.samples), int(page.value("penstock_resident_memory_bytes"))), page


def never_read(port: int) -> list[socket.socket]:
    """Scrapers that send requests and read nothing."""
    found = []
    for _ in range(_SCRAPERS):
        connection = socket.create_connection((HOST, port), 10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found.append(connection)
    return found


def admits(port: int) -> bool:
    """Whether a health check is answered. While all connections are busy, new ones are refused."""
    deadline = time.monotonic() + _ADMISSION_S
    while time.monotonic() < deadline:
        with suppress(ConnectionError):
            return get(port, "/healthz")[0] == 200
        time.sleep(0.1)
    return False


ATTACKS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "client ids": client_ids,
    "groups": groups,
    "client instances": instances,
}


def attack(
    client_port: int, metrics_port: int, count: int, topic_count: int, say: Callable[[str], None]
) -> list[str]:
    """Run all attacks; returns what went wrong."""
    stream = Stream(client_port)
    # It creates the topic of offsets. Without it, each request to the coordinator waits for half a second.
    stream.send_all(iter([frame(FIND_COORDINATOR, 2, "g", FindCoordinatorRequest(key="group-0"))]))
    # The first request of each API adds its samples.
    for make in (*ATTACKS.values(), topics):
        stream.send_all(make(20))
    before, _ = scraped(metrics_port)
    complaints = []
    for name, make in (*ATTACKS.items(), ("topics", topics)):
        size, began = (topic_count if make is topics else count), time.monotonic()
        stream.send_all(make(size))
        after, page = scraped(metrics_port)
        grown = (after.resident_bytes - before.resident_bytes) / (1 << 20)
        say(
            f"{size} {name}: {time.monotonic() - began:.1f} s, {after.samples - before.samples:+} samples, "
            f"{grown:+.1f} MiB"
        )
        left = {labels["topic"] for labels in page.labels("penstock_topic_size_bytes")}
        if any(topic.startswith("topic-") for topic in left):
            complaints.append(f"{name}: deleted topics have samples: {sorted(left)[:3]}")
        if after.samples > before.samples + 20:
            complaints.append(f"{name}: {after.samples - before.samples} more samples")
        if grown > 48:
            complaints.append(f"{name}: {grown:.0f} MiB more memory")
    readers = never_read(metrics_port)
    if not admits(metrics_port) or scraped(metrics_port)[0].samples < before.samples:
        complaints.append("scrapers that never read keep others out")
    for reader in readers:
        reader.close()
    stream.close()
    return complaints


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(prefix="penstock-hostile-") as folder:
        server = penstock(Path(folder), {"penstock.metrics.listener": f"{HOST}:+20000"})
        server.start()
        try:
            complaints = attack(server.port, server.port + 20_000, count, max(20, count // 50), print)
            healthy = server.healthy()
        finally:
            server.stop()
    print("\n".join(complaints) or "bounded")
    return 0 if healthy and not complaints else 1


if __name__ == "__main__":
    sys.exit(main())
