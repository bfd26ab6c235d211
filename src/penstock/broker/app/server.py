"""Runs a broker as a process: event loop, signals, and the ports on the operating system."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import uvloop

from penstock.broker.app.broker import Broker, World
from penstock.broker.app.declared_topics import create_declared, keep_creating
from penstock.broker.app.mounting import Mounting
from penstock.broker.base.descriptors import DESCRIPTORS, raise_limit
from penstock.broker.base.encrypted_disks import with_encryption
from penstock.broker.base.logs import get_logger
from penstock.broker.base.system_ports import OsFiles, SystemClock, SystemRng
from penstock.broker.base.workers import SystemWorkers
from penstock.model.config import BrokerConfig, DeclaredTopic
from penstock.model.errors import PenstockError
from penstock.storage.memory import MemoryFiles

__all__ = ["new_event_loop", "run", "start_unless", "system_world", "tune_garbage_collector"]

log = get_logger("server")
#: descriptors for clients, other brokers and the broker itself, beside one for each partition
_DESCRIPTORS_BESIDE: Final = 200
#: Collect rarely: most requests leave no cycles. A collection of 10,000 young objects takes up to 4 ms, one
#: of 50,000 up to 24 ms. So the middle generation has at most 40,000: a change of the metadata that creates
#: 10,000 partitions leaves 200,000. The oldest generation is collected after 20 million objects.
_GC_THRESHOLDS: Final = (10_000, 4, 500)

new_event_loop = uvloop.new_event_loop


def system_world(config: BrokerConfig) -> World:
    """The ports on the operating system; with `penstock.memory`, the files are in memory only.

    Raises PenstockError if data directories are encrypted and a key is missing, or the other way round.
    """
    files = with_encryption(MemoryFiles() if config.penstock_memory else OsFiles(), config)
    return World(SystemClock(), SystemRng(), files, SystemWorkers(lambda: config.background_threads))


def run(
    config: BrokerConfig,
    *,
    ready: Callable[[str], None],
    topics: Sequence[DeclaredTopic] = (),
    open_mount: Callable[[], Awaitable[Mounting]] | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT; calls `ready` with its address once clients can connect.

    By then `topics` exist, too, except those that need brokers that have not started yet, and so do those of
    the backup that `open_mount` opens. Raises PenstockError or OSError if the broker cannot start.
    """
    raise_limit()
    DESCRIPTORS.open_reserve()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(config, ready, topics, open_mount))


async def _serve(
    config: BrokerConfig,
    ready: Callable[[str], None],
    topics: Sequence[DeclaredTopic],
    open_mount: Callable[[], Awaitable[Mounting]] | None,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_unhandled)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    mount = None if open_mount is None else await open_mount()
    broker = await Broker.open(config, system_world(config), is_process=True, mount=mount)
    if not await start_unless(stopped, broker):
        log.info("stopped_before_ready", node_id=config.node_id)
        return
    _check_descriptors(sum(1 for _ in broker.stages.storage.partitions))
    waiting = await create_declared(broker, topics)
    declaring = loop.create_task(keep_creating(broker, waiting))
    tune_garbage_collector()
    ready(broker.address)
    await _wait_for_stop(broker, stopped)
    declaring.cancel()
    await broker.stop()


def tune_garbage_collector() -> None:
    """Leave the objects of the start out of collections, and collect less often than Python does.

    They are not collected before: a start leaves some hundred objects in cycles, and to look for them would
    hold the event loop for 10 to 50 µs per partition.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def _check_descriptors(partitions: int) -> None:
    """Log a warning if the limit of open files is low for the number of partitions."""
    needed = partitions + _DESCRIPTORS_BESIDE
    if DESCRIPTORS.limit < needed:
        log.warning(
            "descriptor_limit_low",
            limit=DESCRIPTORS.limit,
            needed=needed,
            partitions=partitions,
            hint=f"raise it with ulimit -n {needed}, or LimitNOFILE={needed} in a systemd unit",
        )


async def start_unless(stopped: asyncio.Event, broker: Broker) -> bool:
    """Start the broker; false if `stopped` was set before: the start may wait long for other nodes."""
    starting = asyncio.create_task(broker.start())
    ending = asyncio.create_task(stopped.wait())
    await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.wait([starting])
    return False


async def _wait_for_stop(broker: Broker, stopped: asyncio.Event) -> None:
    """Return when the process gets a signal to stop; PenstockError if the node must leave its cluster."""
    loop = asyncio.get_running_loop()
    ends = [loop.create_task(event.wait()) for event in (stopped, broker.stages.cluster.node.is_over)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    if not stopped.is_set():
        await broker.abort()
        raise PenstockError(
            f"this node had to leave its cluster: {broker.stages.cluster.node.quorum.failure}"
        )


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of a callback, or of a task that nothing awaits, as one event.

    Why: uvloop leaves the lookup of a name behind when its connection is given up. The connection has
    reported its timeout by then, and a name server that does not answer is no error of the broker.
    """
    error = context.get("exception")
    if isinstance(error, socket.gaierror):
        log.debug("lookup_left_behind", error=str(error))
        return
    log.error("unhandled_error", message=context.get("message"), error=repr(error), exc_info=error)
