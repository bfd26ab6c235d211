"""A process in which Fetch has one version more than it has, with a field more in responses.

Only `wire/apis/fetch.py` differs. Two brokers replicate records, and a client repeats its fetch. `main`
prints the version, the values that the client received with the new field, and the templates that were made.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

NAME = "penstock.wire.apis.fetch"
#: a text of the module, and what stands there in the next version
CHANGES = (
    ("(4, 18)", "(4, 19)"),
    (
        "    records: Records | None = record_batches()\n",
        '    records: Records | None = record_batches()\n    toy: int = int32("19+", default=7)\n',
    ),
)


def add_version() -> None:
    """Import the module with its changes, from now on."""
    get_code = SourceFileLoader.get_code

    def changed(loader: SourceFileLoader, name: str) -> Any:
        if name != NAME:
            return get_code(loader, name)
        source = Path(loader.path).read_text()
        for old, new in CHANGES:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        return compile(source, loader.path, "exec")

    SourceFileLoader.get_code = changed  # type: ignore[assignment, method-assign]


async def main() -> None:
    from penstock.net.client import Peer
    from penstock.wire.apis.fetch import FETCH
    from penstock.wire.repeated_client_fetch import ClientFetchTemplate
    from penstock.wire.repeated_replica_fetch import ReplicaFetchTemplate
    from tests.broker.nodes import HOST, cluster, eventually
    from tests.broker.replication import TOPIC, make_topic, produce, replica
    from tests.broker.requests import Topic, fetch_request, values_in, wanted

    made: set[str] = set()
    for kind in (ClientFetchTemplate, ReplicaFetchTemplate):
        kind.of = _noting(kind.of, made)  # type: ignore[method-assign]
    async with cluster(2) as nodes:
        await make_topic(nodes, 1, 2)
        for value in (b"first", b"second"):
            await produce(nodes, 1, value)
        follower, leader = replica(nodes[2]), nodes[1]
        await eventually(lambda: follower.log.high_watermark == 2)
        topic = Topic(TOPIC, leader.stages.cluster.image.topics[TOPIC].id)
        loop = asyncio.get_running_loop()
        peer = Peer(
            loop, HOST, leader.stages.listening.listeners[0].port, client_id="t", rng=leader.stages.world.rng
        )
        received: list[tuple[Any, int]] = []
        for _ in range(3):
            request = fetch_request([(topic, [wanted(0, 0, 1 << 20)])], version=FETCH.max_version)
            response = await peer.send(FETCH, request, 60)
            (answer,) = response.responses[0].partitions
            received.append((values_in(answer), getattr(answer, "toy", 0)))
        peer.close()
    print(FETCH.max_version, received, sorted(made))


def _noting(make: Callable[..., Any], made: set[str]) -> Callable[..., Any]:
    """`make`, which also notes the kinds of templates that it has made."""

    def noting(*args: Any) -> Any:
        template = make(*args)
        if template is not None:
            made.add(type(template).__name__)
        return template

    return noting


if __name__ == "__main__":
    if sys.argv[1:] == ["next"]:
        add_version()
    asyncio.run(main())
