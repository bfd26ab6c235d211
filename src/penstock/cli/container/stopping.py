"""What a pod does before it is stopped: nothing, wait for other replicas, or give its replicas away.

Kubernetes runs it as the preStop hook, and sends SIGTERM when it has ended. If it is killed, nothing is lost:
a broker that waits has changed nothing, and a broker that gives its replicas away keeps each until the new
replica is in sync. `leaving.py` completes what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from penstock.cli.cluster.draining import check_evacuation, evacuate, kept_empty
from penstock.cli.cluster.moves import read_image
from penstock.cli.cluster.overview import quorum_overview
from penstock.cli.container.disruption import obstacles
from penstock.cli.container.kubernetes import KubernetesApi
from penstock.cli.direct import HELLO, DirectLine, NoAnswer
from penstock.cli.failure import Failure
from penstock.metadata.image import TOPIC
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

__all__ = ["Fate", "StatefulSet", "fate_of", "give_away", "wait_for_others"]

_PAUSE_S: Final = 1.0
_SPOKEN_S: Final = 15.0
_MIN_ISR: Final = "min.insync.replicas"


class Fate(Enum):
    """What becomes of a pod that is stopped."""

    RETURNS = "it will be started again"
    LEAVES = "the set has become smaller"
    ENDS = "the whole set ends"


class StatefulSet:
    """The StatefulSet of the brokers, as users want it."""

    def __init__(self, namespace: str, name: str, api: KubernetesApi | None = None) -> None:
        self.namespace = namespace
        self.name = name
        self._api = KubernetesApi() if api is None else api

    def wanted(self) -> int:
        """How many pods users want; 0 if there is no such set, or if it is being deleted."""
        found = self._api.get(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{self.name}")
        if found is None or found["metadata"].get("deletionTimestamp"):
            return 0
        return int(found["spec"].get("replicas", 1))

    def has_pod(self, ordinal: int) -> bool:
        """Whether there is a pod with this ordinal, in whatever state."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{ordinal}"
        return self._api.get(path) is not None


def fate_of(ordinal: int, wanted: int, voters: int) -> Fate:
    """What becomes of the pod. A voter never leaves: without its vote the quorum could lose its majority."""
    if wanted == 0:
        return Fate.ENDS
    return Fate.LEAVES if ordinal >= max(wanted, voters) else Fate.RETURNS


def wait_for_others(
    line: DirectLine,
    broker: int,
    timeout_s: float,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until the other replicas and voters suffice; returns false if they do not in time."""
    end_s, said_s = clock_s() + timeout_s, -_SPOKEN_S
    while True:
        reasons = _reasons(line, broker)
        if not reasons:
            return True
        if clock_s() - said_s >= _SPOKEN_S:
            say(f"broker {broker} waits: {'; '.join(reasons)}")
            said_s = clock_s()
        if clock_s() >= end_s:
            return False
        sleep(_PAUSE_S)


def give_away(line: DirectLine, broker: int, kept: int, timeout_s: float) -> int:
    """Move all replicas of the broker to those with an id below `kept`; returns the number of moves.

    Why: pods that leave a set together run this at the same time. One that has given its replicas away may
    receive some until it stops, and must not get those of another one.
    A Failure before anything has moved, if there is no place for a replica.
    """
    avoided = [id_ for id_ in read_image(line).brokers if id_ >= kept and id_ != broker]
    check_evacuation(line, [broker], timeout_s, avoided)
    with kept_empty(line, broker):
        return evacuate(line, [broker], timeout_s, avoided)


def _reasons(line: DirectLine, broker: int) -> list[str]:
    """The obstacles as they are now. A cluster that does not answer is one, too."""
    try:
        image = read_image(line)
        if broker not in image.brokers:
            return []
        topics = [image.topics_by_id[each.topic_id].name for each in image.partitions_on(broker)]
        return obstacles(image, broker, _minimum(line, sorted(set(topics))), _voters(line))
    except NoAnswer as error:
        return [str(error)]


def _voters(line: DirectLine) -> dict[int, bool]:
    """The voters of the metadata quorum, with whether each responds now."""
    voters: list[Mapping[str, Any]] = quorum_overview(line)["voters"]
    image = read_image(line)
    addresses = {}
    for voter in voters:
        known = image.brokers.get(voter["node"])
        addresses[voter["node"]] = voter["address"] if known is None else _address(known)
    answers = line.send_each(addresses.values(), API_VERSIONS, HELLO)
    return {id_: answers[address] is not None for id_, address in addresses.items()}


def _address(broker: Any) -> str:
    ((host, port),) = broker.endpoints.values()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _minimum(line: DirectLine, topics: list[str]) -> dict[str, int]:
    """`min.insync.replicas` of topics."""
    if not topics:
        return {}
    wanted = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[_MIN_ISR])
        for name in topics
    ]
    response = line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=wanted))
    found = {}
    for each in response.results:
        if each.error_code:
            raise Failure(f"the configs of {each.resource_name} cannot be read: {each.error_message}")
        found[each.resource_name] = next((int(c.value or 1) for c in each.configs if c.name == _MIN_ISR), 1)
    return found
