"""Throws noise, broken frames and broken requests at a live broker and watches whether anyone else notices.

    python -m tests.broker.fuzz [SECONDS] [SEED]

A seed replays the same attacks in the same order. What must hold: the broker lives, a well-behaved client on
a connection of its own is always answered and finds its records, no handler raises what it did not foresee,
memory stays bounded, and once the attackers are gone nothing of theirs is left.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

from lab.stall_meter import WAIT_MS, StallMeter, machine_scale, thread_of
from penstock.broker.request import dispatch
from penstock.records.codecs import Codec
from penstock.testing import BrokerThread, broker
from penstock.wire.api import Api
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.messages import encode_request
from penstock.wire.schema import Struct
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, batch_of, create_topic, read_all, record
from tests.wire.instances import instance
from tools.arguments import Arguments

SETTINGS = {
    "auto.create.topics.enable": "false",
    "socket.request.max.bytes": "1000000",
    "queued.max.request.bytes": "20000000",
}
#: attacks between two looks at how the others are doing
ROUND = 50
#: attackers that stay connected without finishing what they say
LINGERING = 100
MEMORY_GROWTH_MAX = 300 << 20
_ANSWER_S = 0.02
_CODECS = list(Codec)
_CONFIGS = {
    "cleanup.policy": ("compact", "delete", "", "compact,delete"),
    "compression.type": ("gzip", "zstd", "lz4", "snappy", "uncompressed", "producer"),
    "message.timestamp.type": ("LogAppendTime", "CreateTime"),
    "retention.ms": ("1", "-1", "x"),
    "max.message.bytes": ("0", "100", "1000000"),
}


class Known:
    """What exists in the broker: requests that name it get further than those that do not."""

    def __init__(self, topics: list[Topic], random: Random) -> None:
        self._topics = topics
        self._random = random

    def improve(self, message: Struct) -> None:
        """Give some fields of `message`, and of all within, values that mean something."""
        for item in type(message).fields:
            value = getattr(message, item.name)
            if isinstance(value, Struct):
                self.improve(value)
            elif isinstance(value, list) and value and isinstance(value[0], Struct):
                for element in value:
                    self.improve(element)
            else:
                setattr(message, item.name, self._better(item.name, item.kind, value))

    def _better(self, name: str, kind: str, value: Any) -> Any:
        choice = self._random.choice
        if name in ("num_partitions", "count"):
            return choice((-1, 0, 1, 2, 3, 20_000))
        if name.endswith("_ms") and kind == "int32":
            return choice((0, 1, 10, -1))
        if self._random.random() < 0.3:
            return value
        if name in ("name", "topic", "resource_name", "topic_name") and kind == "string":
            return choice([t.name for t in self._topics] + [*_CONFIGS, "", "1"])
        if name == "value" and kind == "string":
            return choice([text for texts in _CONFIGS.values() for text in texts])
        if name == "topic_id":
            return choice(self._topics).id
        if kind == "records":
            return memoryview(self._batch())
        if name in ("index", "partition", "partition_index", "acks", "resource_type", "isolation_level"):
            return choice((0, 0, 1, 2, 4, -1))
        if name.endswith(("offset", "epoch")):
            return choice((0, 1, 2, -1, 5))
        return value

    def _batch(self) -> bytes:
        random = self._random
        records = [record(random.randbytes(random.choice((0, 10, 3000))), key=b"k") for _ in range(3)]
        idempotent = {}
        if random.random() < 0.5:
            idempotent = {
                "producer_id": random.choice((0, 1, 99)),
                "producer_epoch": random.choice((0, 1)),
                "base_sequence": random.choice((0, 3, 6)),
            }
        batch = batch_of(records, random.choice(_CODECS), **idempotent)
        return batch if random.random() < 0.6 else mutated(batch, random)


def mutated(data: bytes, random: Random) -> bytes:
    """A few bytes changed, cut, repeated or put in."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            changed[at:at] = changed[at : at + random.randrange(20)]
        else:
            changed[at : at + 4] = struct.pack(">i", random.choice((-1, -2, 2**31 - 1, 2**24, 0)))
    return bytes(changed)


@dataclass
class Report:
    """How a run went; `failures` are bugs."""

    seed: int
    attacks: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    memory_growth: int = 0
    #: the most processor time that the event loop used while the honest client of the stall meter waited
    loop_ms: float = 0.0


class Fuzzer:
    """Attacks one broker from many connections."""

    def __init__(self, running: BrokerThread, seed: int) -> None:
        self._running = running
        self._random = Random(seed)
        self._address = running.bootstrap.rpartition(":")
        self._apis: list[tuple[Api[Any, Any], int]] = [
            (api, version)
            for api in running.broker.serving.dispatcher.apis
            # The request has its effect: the broker leads nothing any more.
            if api is not UNREGISTER_BROKER
            for version in range(api.min_supported, api.max_version + 1)
        ]
        self._lingering: deque[tuple[socket.socket, bool]] = deque()
        self._attacks: list[Callable[[], bytes]] = [
            self.noise,
            self.wrong_length,
            self.random_body,
            self.request,
            self.request,
            self.request,
            self.broken_request,
            self.broken_request,
            self.pipeline,
        ]
        self.report = Report(seed)
        self._honest: StallMeter | None = None
        self._scale = machine_scale()
        with RawClient(running.bootstrap) as client:
            topics = [
                create_topic(client, partitions=2),
                create_topic(client, configs={"cleanup.policy": "compact"}),
                create_topic(client, configs={"compression.type": "zstd"}),
            ]
        self._known = Known(topics, self._random)

    # -- what is thrown

    def noise(self) -> bytes:
        return self._random.randbytes(self._random.choice((1, 3, 4, 50, 5000)))

    def wrong_length(self) -> bytes:
        length = self._random.choice((-1, -(2**31), 2**31 - 1, 1_000_001, 0, 3, 999_999))
        return struct.pack(">i", length) + self._random.randbytes(self._random.choice((0, 20, 300)))

    def random_body(self) -> bytes:
        api, version = self._random.choice(self._apis)
        version = self._random.choice((version, version, version + 1, -1, 32767))
        header = struct.pack(">hhih", api.key, version, 1, -1)
        return self._framed(header + self._random.randbytes(self._random.choice((0, 1, 10, 100, 2000))))

    def request(self) -> bytes:
        api, version = self._random.choice(self._apis)
        message = instance(api.request, version, self._random)
        self._known.improve(message)
        return b"".join(bytes(part) for part in encode_request(api, version, 1, "fuzz", message))  # type: ignore[arg-type]

    def broken_request(self) -> bytes:
        return self._framed(mutated(self.request()[4:], self._random))

    def pipeline(self) -> bytes:
        parts = [self.request() for _ in range(self._random.randrange(2, 30))]
        if self._random.random() < 0.5:
            parts.append(self.broken_request())
        return b"".join(parts)

    def _framed(self, content: bytes) -> bytes:
        return struct.pack(">i", len(content)) + content

    # -- throwing it

    def run(self, seconds: float) -> Report:
        """Attack for that long; the report's `failures` say what should not have happened."""
        log_error = dispatch.log.error
        dispatch.log.error = self._handler_failed
        try:
            port = int(self._address[2])
            with (
                RawClient(self._running.bootstrap, timeout_s=60) as control,
                StallMeter(port, thread_of()) as self._honest,
            ):
                topic = create_topic(control)
                self._round(control, topic, 0)
                memory = resident_bytes()
                end = monotonic() + seconds
                number = 0
                while monotonic() < end and not self.report.failures:
                    number += 1
                    self._round(control, topic, number)
                self.report.memory_growth = resident_bytes() - memory
                self._check_nothing_is_left()
        finally:
            dispatch.log.error = log_error
        return self.report

    def _round(self, control: RawClient, topic: Topic, number: int) -> None:
        thrown = []
        for _ in range(ROUND):
            attack = self._random.choice(self._attacks)
            self.report.attacks[attack.__name__] += 1
            thrown.append(attack())
            self._throw(thrown[-1])
        self._check_waits(thrown)
        append(control, topic, b"%d" % number)
        last = read_all(control, topic, number)
        assert [r.value for r in last] == [b"%d" % number], "the control client lost its record"

    def _check_waits(self, thrown: list[bytes]) -> None:
        """Report payloads that make other clients wait, shrunk to one frame and the bytes that it needs."""
        assert self._honest is not None
        waited = self._honest.window().loop_ms
        if waited > WAIT_MS * self._scale:
            waited = 0.0
            for payload in thrown:
                took = self._stalls(payload)
                if took:
                    least = self._shrunk(payload)
                    self.report.failures.append(f"{took:.0f} ms of the event loop: {least.hex()}")
                    waited = max(waited, took)
        self.report.loop_ms = max(self.report.loop_ms, waited)

    def _stalls(self, payload: bytes) -> float:
        assert self._honest is not None
        return self._honest.stalls(lambda: self._throw(payload), self._scale)

    def _shrunk(self, payload: bytes) -> bytes:
        """The shortest frame of a payload that stalls, without the bytes at its end that it does not need."""
        for frame in sorted(_frames(payload), key=len):
            if self._stalls(frame):
                payload = frame
                break
        while len(payload) > 8 and self._stalls(self._framed(payload[4 : 4 + (len(payload) - 4) // 2])):
            payload = self._framed(payload[4 : 4 + (len(payload) - 4) // 2])
        return payload

    def _throw(self, payload: bytes) -> None:
        host, _, port = self._address
        attacker = socket.create_connection((host, int(port)), 60)
        try:
            cut = self._random.randrange(len(payload) + 1) if self._random.random() < 0.3 else 0
            attacker.sendall(payload[:cut])
            attacker.sendall(payload[cut:])
        except ConnectionError:
            self.report.refused += 1
            attacker.close()
            return
        # Some requests wait, and half a request waits for ever: connections without one stay for a while, in
        # which one may come, on a slow machine.
        heard = self._hears(attacker, _ANSWER_S)
        if heard and self._random.random() > 0.1:
            attacker.close()
            return
        self._lingering.append((attacker, heard))
        if len(self._lingering) > LINGERING:
            self._leave(*self._lingering.popleft())

    def _hears(self, attacker: socket.socket, patience_s: float) -> bool:
        attacker.settimeout(patience_s)
        try:
            if attacker.recv(1 << 16):
                self.report.answered += 1
            else:
                self.report.refused += 1
        except ConnectionError:
            self.report.refused += 1
        except (TimeoutError, BlockingIOError):
            return False
        return True

    def _leave(self, attacker: socket.socket, heard: bool) -> None:
        if not heard:
            self._hears(attacker, 0.0)
        attacker.close()

    # -- watching

    def _handler_failed(self, event: str, **fields: object) -> None:
        self.report.failures.append(f"{event}: {fields}")

    def _check_nothing_is_left(self) -> None:
        while self._lingering:
            self._leave(*self._lingering.popleft())
        server = self._running.broker.stages.listening.server
        deadline = monotonic() + 60
        # The control client and that of the stall meter stay.
        while len(server.connections) > 2 or server.pool.held:
            if monotonic() > deadline:
                left = f"{len(server.connections)} connections, {server.pool.held} bytes of buffers"
                self.report.failures.append(f"left behind: {left}")
                return
            sleep(0.01)


def _frames(payload: bytes) -> list[bytes]:
    """The complete frames at the start of a payload."""
    found, at = [], 0
    while at + 4 <= len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        if size < 0 or at + 4 + size > len(payload):
            break
        found.append(payload[at : at + 4 + size])
        at += 4 + size
    return found


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def fuzz(seconds: float, seed: int) -> Report:
    """Fuzz a broker of its own; AssertionError if anything that must hold did not."""
    with broker(config=SETTINGS) as running:
        report = Fuzzer(running, seed).run(seconds)
        errors = {stats.name: stats.failures for stats in running.broker.stages.storage.metrics.apis.values()}
    assert not report.failures, f"seed {seed}: {report.failures}"
    assert not any(errors.values()), f"seed {seed}: {errors}"
    assert report.memory_growth < MEMORY_GROWTH_MAX, f"seed {seed}: grew by {report.memory_growth} bytes"
    return report


def main() -> None:
    parser = Arguments(prog="python -m tests.broker.fuzz", description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("seed", type=int, nargs="?", default=Random().randrange(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    report = fuzz(given.seconds, given.seed)
    print(f"{report.attacks.total()} attacks: {report.answered} answered, {report.refused} refused")
    print(f"memory grew by {report.memory_growth >> 20} MB")
    print(f"the honest client waited for at most {report.loop_ms:.1f} ms of the event loop")


if __name__ == "__main__":
    main()
