"""`Consumer.close` ends an exactly-once run, whatever the run waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from penstock.client import Consumer, Message, Producer, RetryPolicy, Transaction
from penstock.client import run_producer as producers
from penstock.client.errors import NotReachable, TransactionFailed
from penstock.client.exactly_once import ExactlyOnce, Job, Limits
from penstock.client.fetching import Fetcher
from penstock.client.first_contact import FirstContact
from penstock.client.run_producer import RunProducer
from penstock.client.stopping import Stop, Stopped
from penstock.testing import broker
from tests.client.conftest import QUICK_GROUPS
from tests.client.fakes import RETRIABLE, FakeProducer, FakeTransaction, Librdkafka, Reader, transactions

#: longer than any test may take
FOREVER_S = 3600.0


async def forever(*_: object) -> None:
    await asyncio.sleep(FOREVER_S)  # never


def play(test: Callable[[], Awaitable[object]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


# -- the request


def test_a_stop_wakes_a_sleep_and_cancels_an_operation() -> None:
    async def test() -> None:
        stop = Stop()
        sleeping = asyncio.create_task(stop.sleep(FOREVER_S))
        waiting = asyncio.create_task(stop.interrupting(forever()))
        await asyncio.sleep(0)
        assert await stop.interrupting(asyncio.sleep(0, "result")) == "result"
        stop.set(FOREVER_S)
        await sleeping
        with pytest.raises(Stopped):
            await waiting

    play(test)


def test_the_deadline_ends_work_that_continues_after_a_stop() -> None:
    async def test() -> None:
        stop = Stop()
        stop.set(FOREVER_S)
        with pytest.raises(Stopped):
            async with stop.limiting():
                stop.set(0.001)
                await forever()
        stop.set(FOREVER_S)  # does not extend the deadline
        with pytest.raises(Stopped):
            async with stop.limiting():
                await forever()

    play(test)


def test_another_timeout_is_not_a_stop() -> None:
    async def test() -> None:
        with pytest.raises(TimeoutError):
            async with Stop().limiting():
                raise TimeoutError

    play(test)


# -- transactions


class NoCoordinator(Librdkafka):
    """Answers one call with a timeout, and stops at its first one."""

    def __init__(self, call: str, stop: Callable[[], None]) -> None:
        super().__init__()
        self._call = call
        self._stop = stop

    def __getattr__(self, name: str) -> Callable[..., None]:
        call = super().__getattr__(name)

        def timed_out(*_: Any) -> None:
            self._stop()
            raise RETRIABLE

        return timed_out if name == self._call else call


def test_a_start_without_a_coordinator_ends_at_once() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        rk = NoCoordinator("init_transactions", lambda: stop_from(loop, made.outlet.stop, FOREVER_S))
        made = transactions(rk)
        with pytest.raises(Stopped):
            await made.init(lambda: asyncio.sleep(0))

    play(test)


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
def test_an_end_without_a_coordinator_is_abandoned_at_the_deadline(call: str) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        rk = NoCoordinator(call, lambda: stop_from(loop, made.outlet.stop, 0.01))
        made = transactions(rk)
        with pytest.raises(TransactionFailed, match="no outcome at the end of close") as raised:
            async with made.scope():
                if call == "abort_transaction":
                    raise ZeroDivisionError
        assert raised.value.is_timeout
        assert raised.value.outcome_unknown is (call == "commit_transaction")

    play(test)


def stop_from(loop: asyncio.AbstractEventLoop, stop: Stop, timeout_s: float) -> None:
    """Set the stop on the thread of the event loop, and wait until it is set."""

    async def set_stop() -> None:
        if not stop.is_set():
            stop.set(timeout_s)

    asyncio.run_coroutine_threadsafe(set_stop(), loop).result()


def test_a_step_ends_before_its_caller_is_cancelled() -> None:
    """Otherwise the abort would begin while librdkafka still has the other call."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        rk = Librdkafka()
        made = transactions(rk)

        def slow(*_: Any) -> None:
            loop.call_soon_threadsafe(task.cancel)
            time.sleep(0.05)  # a call of librdkafka that blocks
            rk.calls.append("offsets")

        async def work() -> None:
            async with made.scope() as transaction:
                await transaction.add_offsets(cast(Any, Offsets()))

        rk.send_offsets_to_transaction = slow  # type: ignore[attr-defined]
        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rk.calls == ["begin_transaction", "offsets", "abort_transaction"]

    class Offsets:
        offsets = {("t", 0): 1}  # noqa: RUF012
        metadata = b""

    play(test)


class Unreachable:
    """A producer that never starts."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    async def start(self) -> None:
        self._stop.set(FOREVER_S)
        raise NotReachable("no coordinator", -1)

    async def close(self) -> None: ...


def test_a_producer_is_not_replaced_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "_RETRY", RetryPolicy(backoff=FOREVER_S, max_backoff=FOREVER_S))

    async def test() -> None:
        stop = Stop()
        make = cast(Any, lambda: Unreachable(stop))
        producer = RunProducer(None, make, is_shared_id=False, timeout_s=1.0, stop=stop)
        producer._producer = make()
        with pytest.raises(Stopped):
            await producer.replace()

    play(test)


# -- runs


class Loading:
    """Processed keys that cannot be read."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.outcomes: list[bool] = []

    async def load(self, partitions: object) -> None:
        self.begun.set()
        await forever()

    def ended(self, committed: bool) -> None:
        self.outcomes.append(committed)


class HangingProducer(FakeProducer):
    """Aborts transactions."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[FakeTransaction]:
        yield FakeTransaction()
        raise AssertionError("committed")


class Case:
    """A run whose handler does not end, or that the test replaces."""

    def __init__(self, duplicates: Loading | None = None) -> None:
        self.reader = Reader()
        self.called = asyncio.Event()
        self.handler: Callable[..., Awaitable[None]] = forever
        self.retry = RetryPolicy(attempts=9, backoff=FOREVER_S, max_backoff=FOREVER_S)
        self._duplicates = duplicates

    async def _handle(self, message: Message, transaction: Transaction) -> None:
        self.called.set()
        await self.handler()

    def start(self) -> asyncio.Task[None]:
        job = Job(
            handler=self._handle,
            concurrency=None,
            retry=self.retry,
            dead_letter=None,
            group="g",
            tracing=None,
        )
        run = ExactlyOnce(
            job,
            Limits(FOREVER_S, FOREVER_S),
            cast(Any, self.reader),
            cast(Any, HangingProducer()),
            cast(Any, self._duplicates),
        )
        return asyncio.create_task(run.run())


def test_a_load_of_keys_is_interrupted_and_its_messages_are_not_handled() -> None:
    """Without all keys a message could be handled twice."""

    async def test() -> None:
        keys = Loading()
        case = Case(keys)
        running = case.start()
        await keys.begun.wait()
        case.reader.stop.set(FOREVER_S)
        await running
        assert not case.called.is_set()
        assert keys.outcomes == [False]
        assert len(case.reader.waiting) == 4

    play(test)


def test_a_handler_is_cancelled_at_the_deadline() -> None:
    async def test() -> None:
        case = Case()
        running = case.start()
        await case.called.wait()
        case.reader.stop.set(0.01)
        await running
        assert len(case.reader.waiting) == 4

    play(test)


def test_the_pause_after_a_failure_ends() -> None:
    async def test() -> None:
        case = Case()

        async def fail() -> None:
            # The run sleeps after this turn of the event loop.
            asyncio.get_running_loop().call_later(0.01, case.reader.stop.set, FOREVER_S)
            raise ValueError

        case.handler = fail
        await case.start()

    play(test)


# -- consumers


class Closing:
    """librdkafka's consumer, which counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        time.sleep(0.02)  # a call of librdkafka that blocks


def test_a_consumer_is_closed_once_by_all_callers() -> None:
    async def test() -> None:
        fetcher = Fetcher({}, None, cast(Any, None), cast(Any, None), FirstContact("", None))
        rk = Closing()
        fetcher._config["bootstrap.servers"] = "127.0.0.1:1"
        fetcher._config["group.id"] = "g"
        fetcher.start()
        fetcher._rk.close()
        fetcher._rk = rk
        await asyncio.gather(fetcher.close(), fetcher.close(), fetcher.close())
        assert rk.closed == 1

    play(test)


def test_a_run_ends_while_no_broker_answers(name: str) -> None:
    """The broker ends in the middle of a transaction, which then has no coordinator."""

    async def test() -> None:
        with broker(config={**QUICK_GROUPS, "transaction.state.log.num.partitions": "1"}) as running:
            async with Producer(running.bootstrap) as producer:
                await producer.send(name, b"0")
            consumer = Consumer(running.bootstrap, name, group=name, delivery="exactly_once")

            async def handle(message: Message, transaction: Transaction) -> None:
                await transaction.send(f"{name}-out", message.value)
                await asyncio.to_thread(running.kill)
                closing.append(asyncio.create_task(consumer.close(wait=0.1)))
                await forever()

            closing: list[asyncio.Task[None]] = []
            async with consumer:
                await consumer.run(handle)
            await closing[0]

    play(test)
