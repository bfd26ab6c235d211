"""Jobs of load clients, on a client whose server is a list."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import pytest

from bench.compare.clients import protocol
from bench.compare.clients.protocol import LoadClient, as_ranges, at, number_of, serve
from bench.compare.losses import lost


class Memory(LoadClient):
    """Keeps the messages of a target in a list."""

    kept: ClassVar[dict[str, list[bytes]]] = {}

    async def open(self) -> None:
        if self.address != "memory":
            raise ConnectionRefusedError(self.address)

    async def close(self) -> None: ...

    async def create(self) -> None:
        self.kept[self.target] = []

    async def remove(self) -> None:
        del self.kept[self.target]

    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        for payload in payloads:
            await self.send_one(payload)
            if acked is not None:
                acked(payload)
                await asyncio.sleep(0)

    async def send_one(self, payload: bytes) -> None:
        self.kept[self.target].append(payload)

    async def send_soon(self, payload: bytes) -> None:
        await self.send_one(payload)

    async def read(self) -> AsyncIterator[list[bytes]]:
        yield []
        while self.kept[self.target]:
            yield [self.kept[self.target].pop(0)]
        while True:
            await asyncio.sleep(0.01)
            yield []

    def read_one(self) -> AsyncIterator[list[bytes]]:
        return self.read()


def run(monkeypatch: pytest.MonkeyPatch, *said: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of a client that reads `said`."""
    output = io.StringIO()
    monkeypatch.setattr(protocol, "IDLE_S", 0.05)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in said)))
    monkeypatch.setattr(sys, "stdout", output)
    serve(Memory)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def job(do: str, **more: Any) -> dict[str, Any]:
    return {"do": do, "address": "memory", "target": "t", **more}


def test_all_that_was_produced_is_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    go = {"go": True}
    produce = job("produce", size=10, batched=True, most=32)
    consume = job("consume", batched=True, most=33)
    said = run(monkeypatch, job("create"), produce, go, consume, go, job("remove"))
    assert said[1] == said[3] == {"ready": True}
    # One message more was sent before the clock started.
    assert (said[2]["messages"], said[4]["messages"]) == (32, 33)
    assert said[2]["seconds"] > 0


def test_unbatched_messages_are_sent_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = job("produce", size=10, batched=False, most=5)
    said = run(monkeypatch, job("create"), produce, {"go": True})
    assert said[-1]["messages"] == 5
    assert len(Memory.kept["t"]) == 6


def test_a_job_that_fails_does_not_end_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(monkeypatch, {**job("create"), "address": "nowhere"}, job("create"))
    assert said == [{"failed": "ConnectionRefusedError: nowhere"}, {}]


def test_messages_carry_the_time_at_which_they_were_due(monkeypatch: pytest.MonkeyPatch) -> None:
    send = job("send", size=100, count=5, rate=1000)
    receive = job("receive", count=5, patience=1)
    said = run(monkeypatch, job("create"), send, {"go": True}, receive, {"go": True})
    found = said[-1]
    assert found["messages"] == 5, "messages of the warm-up do not count"
    # They were read half a second after the last one was due, and that counts.
    assert 400 < found["p50"] < 60_000
    assert found["p50"] <= found["p99"] <= found["max"]


def test_a_log_is_listed_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    log = job("log", size=20, most=50)
    said = run(monkeypatch, job("create"), log, {"go": True}, {"stop": True}, job("list"))
    *_, sent, found = said
    assert sent["numbers"] == found["numbers"]
    assert found["repeated"] == 0


@pytest.mark.parametrize(
    ("numbers", "ranges"), [([], []), ([3, 1, 2, 2], [(1, 3)]), ([1, 3, 4], [(1, 1), (3, 4)])]
)
def test_numbers_as_ranges(numbers: list[int], ranges: list[tuple[int, int]]) -> None:
    assert as_ranges(numbers) == ranges


def test_acknowledged_messages_that_are_missing_are_lost() -> None:
    assert lost([(0, 9), (20, 20)], [(0, 4), (8, 30)]) == 3
    assert lost([], [(0, 9)]) == 0


def test_percentiles() -> None:
    ordered = [float(value) for value in range(1000)]
    assert [at(ordered, share) for share in (0.5, 0.99, 1.0)] == [500.0, 990.0, 999.0]
    assert at([], 0.5) == 0.0


def test_a_number_is_read_back() -> None:
    assert number_of(b"\0" * 7 + b"\x07padding") == 7


def test_a_reader_gets_all_that_has_arrived_or_an_empty_batch() -> None:
    async def read() -> None:
        arrived = protocol.Arrivals[bytes]()
        batches = arrived.batches()
        assert await anext(batches) == []
        arrived.add(b"a")
        arrived.add(b"b")
        assert await anext(batches) == [b"a", b"b"]
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        arrived.add(b"c")
        assert await waiting == [b"c"]
        assert await anext(batches) == []

    asyncio.run(read())
