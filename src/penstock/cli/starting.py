"""Starting brokers of a cluster on this machine, and making the folders of new ones."""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.broker_home import BrokerHome
from penstock.cli.failure import Failure, misused
from penstock.cli.processes import wait_for_end

if TYPE_CHECKING:
    from penstock.model.config import DeclaredTopic

__all__ = ["ClusterPlan", "free_port", "internal_port", "make_homes", "start_all", "stop_again"]

_INTERNAL_OFFSET: Final = 10_000
#: where any port will do: none of those that systems give to outgoing connections, and may have given then
_ANY_PORTS: Final = range(20_000, 32_000)
_READY: Final = b"ready "
_CLEANUP_S: Final = 10.0
#: where there are this many brokers, each partition has as many replicas, two of which must be in sync
_REPLICAS: Final = 3


class ClusterPlan(NamedTuple):
    """What a new cluster shall be; `configs` hold for all of its brokers."""

    brokers: int
    host: str
    port: int
    racks: Sequence[str]
    configs: Mapping[str, str]
    topics: Sequence[DeclaredTopic]


def make_homes(directory: Path, plan: ClusterPlan) -> list[BrokerHome]:
    """Folders for brokers 1 to n, the first five of which vote."""
    from penstock.model.config import BrokerConfig
    from penstock.model.config.layers import INTERNAL, MAX_VOTERS, bracketed
    from penstock.model.ids import format_topic_id

    homes = [BrokerHome(directory, id_) for id_ in range(1, plan.brokers + 1)]
    taken: set[int] = set()
    clients = [_client_port(plan.host, plan.port and plan.port + i, taken) for i in range(plan.brokers)]
    internal = [internal_port(plan.host, port, taken) for port in clients]
    host = bracketed(plan.host)
    voters = zip(homes[:MAX_VOTERS], internal, strict=False)
    quorum = ",".join(f"{home.id}@{host}:{port}" for home, port in voters)
    # Else it would follow from the addresses: data of an earlier cluster on these ports would fit this one.
    cluster_id = format_topic_id(random.randbytes(16))
    for home, client_port, inner_port in zip(homes, clients, internal, strict=True):
        configs = {
            "node.id": str(home.id),
            "listeners": f"PLAINTEXT://{host}:{client_port},{INTERNAL}://{host}:{inner_port}",
            "controller.quorum.voters": quorum,
            "log.dirs": str(home.data.absolute()),
            "penstock.cluster.id": cluster_id,
            **_defaults(plan.brokers),
            **plan.configs,
        }
        if home.id > MAX_VOTERS:
            configs["process.roles"] = "broker"
        if plan.racks:
            configs["broker.rack"] = plan.racks[(home.id - 1) % len(plan.racks)]
        BrokerConfig(configs)  # refuses what no broker would start with
        home.write(configs, plan.topics)
    return homes


def free_port(host: str, wanted: int, taken: set[int]) -> int:
    """The port that is wanted, if nobody has it, else any that is free; it is `taken` then."""
    others = random.sample(_ANY_PORTS, len(_ANY_PORTS))
    candidates = [wanted, *others] if 0 < wanted < 65536 else others
    for port in candidates:
        if port not in taken and _is_free(host, port):
            taken.add(port)
            return port
    raise Failure(f"no port is free on {host}: choose others with --port")


def internal_port(host: str, client_port: int, taken: set[int]) -> int:
    """Where a broker listens for others: at a fixed distance from its port, if that is a good place."""
    wanted = client_port + _INTERNAL_OFFSET
    return free_port(host, wanted if wanted < _ANY_PORTS.stop else 0, taken)


def start_all(
    homes: Sequence[BrokerHome],
    timeout_s: float,
    *,
    together: bool = False,
    started: Callable[[BrokerHome], None] = lambda home: None,
) -> None:
    """Start brokers that do not run and return when each is ready; `started` hears of each process.

    A Failure names one that is not. The others go on, unless they are started `together`, for the first time:
    then none is left.
    """
    outputs: dict[int, BrokerHome] = {}
    try:
        for home in homes:
            outputs[home.start()] = home
            started(home)
        with _progress(len(homes)) as advance:
            failures = _await_ready(dict(outputs), timeout_s, advance, together=together)
        if failures:
            raise failures[0]
    except BaseException:
        if together:
            stop_again(homes)
        raise
    finally:
        for output in outputs:
            os.close(output)


def _await_ready(
    outputs: dict[int, BrokerHome], timeout_s: float, advance: Callable[[], None], *, together: bool
) -> list[Failure]:
    """What went wrong, once each is ready, has ended, or is late; at once where they start together."""
    deadline = time.monotonic() + timeout_s
    lines = dict.fromkeys(outputs, b"")
    failures: list[Failure] = []
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output, selectors.EVENT_READ)
        while outputs and not (together and failures):
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                return [*failures, _late(list(outputs.values()), timeout_s)]
            for key, _ in events:
                read = os.read(key.fd, 1024)
                lines[key.fd] += read
                # The whole line: who closes the pipe before its end breaks it.
                if read and not read.endswith(b"\n"):
                    continue
                home = outputs.pop(key.fd)
                selector.unregister(key.fd)
                if lines[key.fd].startswith(_READY):
                    advance()
                else:
                    home.pid_file.unlink(missing_ok=True)
                    failures.append(_failed(home))
    return failures


def _failed(home: BrokerHome) -> Failure:
    return Failure(f"broker {home.id} did not start: {home.last_words()} ({home.log_file})")


def _late(homes: Sequence[BrokerHome], timeout_s: float) -> Failure:
    names = ", ".join(str(home.id) for home in homes)
    return Failure(
        f"not ready within {timeout_s:g} s: broker {names}; give longer with --timeout, or see "
        f"{homes[0].log_file}"
    )


def stop_again(homes: Collection[BrokerHome]) -> None:
    """End at once those that were started."""
    ending = [process for home in homes if (process := home.signal(signal.SIGKILL)) is not None]
    wait_for_end(ending, _CLEANUP_S)
    for home in homes:
        home.pid_file.unlink(missing_ok=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal that is filled broker by broker."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("brokers ready"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _defaults(brokers: int) -> dict[str, str]:
    replicas = min(brokers, _REPLICAS)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
    }


def _client_port(host: str, port: int, taken: set[int]) -> int:
    if port and not _is_free(host, port):
        raise Failure(f"{host}:{port} is in use: stop what listens there, or choose another --port")
    if port > 65535:
        misused(f"there is no port {port}: choose a lower --port")
    return free_port(host, port, taken)


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
