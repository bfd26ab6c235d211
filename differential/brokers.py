"""The two brokers that are compared: Penstock from this working tree, and Apache Kafka from the lab."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from differential.connection import Connection
from differential.operations import Operation
from differential.run import Party
from lab.apache_kafka import SINGLE_BROKER, apache_kafka
from lab.penstock import penstock
from lab.server import HOST, Server
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from penstock.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ["both", "common_versions", "warm_up"]

#: nothing happens by itself, and nothing waits
SETTINGS: Final = {
    **SINGLE_BROKER,
    "auto.create.topics.enable": "false",
    "num.partitions": "2",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
_OURS: Final = {"node.id": "1"}
_WARM_UP_S: Final = 60.0
_PAUSE_S: Final = 0.05
_WARM_UP_ID: Final = "warm-up"


@dataclass(frozen=True, slots=True)
class Broker:
    name: str
    host: str
    port: int


@contextmanager
def both(against: str) -> Iterator[tuple[Party, Party]]:
    """Two running brokers; `against` is `kafka`, or `penstock` to compare it with itself."""
    with ExitStack() as stack:
        parties = []
        for kind in ("penstock", against):
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="differential-")))
            server: Server = (
                apache_kafka(folder, SETTINGS) if kind == "kafka" else penstock(folder, {**SETTINGS, **_OURS})
            )
            server.start()
            stack.callback(server.stop)
            parties.append(Broker(kind, HOST, server.port))
        yield parties[0], parties[1]


def common_versions(*parties: Party) -> dict[int, tuple[int, int]]:
    """The versions of each API that all brokers serve, and that there are tables for."""
    found: list[dict[int, tuple[int, int]]] = []
    for party in parties:
        connection = Connection(party.host, party.port)
        request = ApiVersionsRequest(client_software_name="differential", client_software_version="1")
        answer = connection.call(Operation("versions", API_VERSIONS, 3, request), request)
        connection.close()
        assert isinstance(answer, ApiVersionsResponse), answer
        found.append({api.api_key: (api.min_version, api.max_version) for api in answer.api_keys})
    found.append({key: (api.min_supported, api.max_version) for key, api in APIS.items()})
    return {
        key: (max(versions[key][0] for versions in found), min(versions[key][1] for versions in found))
        for key in set.intersection(*(set(versions) for versions in found))
    }


def warm_up(party: Party) -> None:
    """Have internal topics created and producer ids allocated: Kafka's first answers are to try again."""
    connection = Connection(party.host, party.port)
    find = FindCoordinatorRequest(coordinator_keys=["any"])
    init = InitProducerIdRequest(transaction_timeout_ms=60_000)
    find_other = FindCoordinatorRequest(key_type=1, coordinator_keys=[_WARM_UP_ID])
    init_other = InitProducerIdRequest(transactional_id=_WARM_UP_ID, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + _WARM_UP_S
    while time.monotonic() < deadline:
        found = connection.call(Operation("warm-up", FIND_COORDINATOR, 4, find), find)
        made = connection.call(Operation("warm-up", INIT_PRODUCER_ID, 4, init), init)
        connection.call(Operation("warm-up", FIND_COORDINATOR, 4, find_other), find_other)
        ready = connection.call(Operation("warm-up", INIT_PRODUCER_ID, 4, init_other), init_other)
        assert isinstance(found, FindCoordinatorResponse) and isinstance(made, InitProducerIdResponse)
        assert isinstance(ready, InitProducerIdResponse)
        codes = [made.error_code, ready.error_code, *(c.error_code for c in found.coordinators)]
        if not any(codes):
            break
        time.sleep(_PAUSE_S)
    connection.close()
