"""Clients that try to exhaust a broker's memory, one after the other: `python -m tests.hostile.memory`.

Each attack is one principal's. The peak of the broker's resident memory must stay within a limit, and an
honest client must be served.
"""

from __future__ import annotations

import socket
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.records.codecs import Codec, compress
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.apis.get_telemetry_subscriptions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.apis.push_telemetry import PUSH_TELEMETRY, PushTelemetryRequest
from penstock.wire.apis.share_fetch import SHARE_FETCH, ShareFetchRequest
from penstock.wire.apis.share_fetch import FetchPartition as SharePartition
from penstock.wire.apis.share_fetch import FetchTopic as ShareTopic
from tests.hostile.clients import Client, Kind, frame_of, prepare
from tests.hostile.ordinary import TOPICS
from tests.hostile.target import HOST, Target, target

__all__ = ["ATTACKS", "attack", "attack_all", "bomb", "produced"]

#: how much an attack may add to the peak of the resident memory
GROWTH_MAX: Final = 400 << 20
_BOMB_BYTES: Final = 1 << 30


def _peak_bytes(running: Target) -> int:
    status = Path(f"/proc/{running.loop_thread[0]}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def _reset_peak(running: Target) -> None:
    Path(f"/proc/{running.loop_thread[0]}/clear_refs").write_text("5")


def bomb(codec: Codec) -> bytes:
    """A record batch of some hundred kilobytes whose records decompress to a gigabyte of zeros."""
    records = bytes(compress(codec, bytes(_BOMB_BYTES // 8)))
    # From the attributes on, which the checksum covers: one record, no producer.
    body = struct.pack(">hiqqqhii", codec.value, 0, 0, 0, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, 9 + len(body), 0, 2, _crc32c(body)) + body


def _crc32c(data: bytes) -> int:
    from crc32c import crc32c

    return int(crc32c(data))


def produced(batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name=next(iter(TOPICS)), partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic])


def decompression(running: Target) -> None:
    """Small batches that decompress to a gigabyte in all, with each codec, on several connections."""
    clients = [Client(running, Kind.OPEN) for _ in range(8)]
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.SNAPPY, Codec.LZ4):
        frame = frame_of(PRODUCE, 9, produced(bomb(codec)))
        for client in clients:
            client.send(frame)
        for client in clients:
            client.receive()
    for client in clients:
        client.close()


def telemetry(running: Target) -> None:
    """Metrics that decompress to a gigabyte."""
    with Client(running, Kind.OPEN) as client:
        told = client.call(GET_TELEMETRY_SUBSCRIPTIONS, GetTelemetrySubscriptionsRequest())
        metrics = zlib.compress(bytes(_BOMB_BYTES // 4), 9, wbits=31)
        request = PushTelemetryRequest(
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            compression_type=1,
            metrics=metrics,
        )
        client.call(PUSH_TELEMETRY, request)


def unread_responses(running: Target) -> None:
    """Requests with large responses, pipelined on connections that never read."""
    frame = frame_of(METADATA, 12, MetadataRequest(topics=None)) * 2000
    held = []
    for _ in range(30):
        connected = socket.create_connection((HOST, running.ports["PLAINTEXT"]), 10)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connected.settimeout(0.2)
        try:
            while True:
                connected.sendall(frame)
        except TimeoutError:
            held.append(connected)  # The broker has stopped reading.
    for connected in held:
        connected.close()


def fetch_sessions(running: Target) -> None:
    """New fetch sessions with many partitions each."""
    partitions = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(20_000)]
    request = FetchRequest(
        max_wait_ms=0,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic(topic=next(iter(TOPICS)), partitions=partitions)],
    )
    frame = frame_of(FETCH, 12, request)
    with Client(running, Kind.OPEN) as client:
        for _ in range(60):
            client.exchange(frame)


def share_sessions(running: Target) -> None:
    """Share sessions of many members, with many partitions each."""
    topics = [
        ShareTopic(topic_id=bytes(16), partitions=[SharePartition(partition_index=i)]) for i in range(2000)
    ]
    with Client(running, Kind.OPEN) as client:
        for number in range(200):
            request = ShareFetchRequest(
                group_id="group",
                member_id=f"{number:0>22}",
                share_session_epoch=0,
                max_wait_ms=0,
                max_bytes=1,
                topics=topics,
            )
            client.exchange(frame_of(SHARE_FETCH, 1, request))


def large_requests(running: Target) -> None:
    """Requests with as many elements as one may have, on several connections at once."""
    groups = [OffsetFetchRequestGroup(group_id="", topics=None)] * 400_000
    frame = frame_of(OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups))
    clients = [Client(running, Kind.OPEN) for _ in range(6)]
    for client in clients:
        client.send(frame)
    for client in clients:
        client.receive()
        client.close()


ATTACKS: Final[dict[str, Callable[[Target], None]]] = {
    "decompression of records": decompression,
    "decompression of metrics": telemetry,
    "responses that are not read": unread_responses,
    "fetch sessions": fetch_sessions,
    "share sessions": share_sessions,
    "large requests": large_requests,
}


def attack(running: Target, name: str) -> int:
    """Run an attack; returns by how many bytes the peak of the resident memory grew."""
    before = running.resident_bytes()
    _reset_peak(running)
    ATTACKS[name](running)
    return _peak_bytes(running) - before


def attack_all(running: Target, say: Callable[[str], None]) -> list[str]:
    """Run all attacks; returns those that grew the memory by too much."""
    complaints = []
    software = ApiVersionsRequest(client_software_name="honest", client_software_version="1")
    for name in ATTACKS:
        before = running.resident_bytes()
        grown = attack(running, name)
        left = running.resident_bytes() - before
        say(f"{name}: peak {grown / (1 << 20):+.0f} MiB, {left / (1 << 20):+.0f} MiB left")
        if grown > GROWTH_MAX:
            complaints.append(f"{name}: {grown >> 20} MiB")
        with Client(running, Kind.OPEN) as honest:
            assert honest.call(API_VERSIONS, software).api_keys, f"not served after {name}"
    return complaints


def main() -> int:
    with target() as running:
        prepare(running)
        complaints = attack_all(running, lambda text: print(text, flush=True))
    print("\n".join(complaints) or "bounded")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
