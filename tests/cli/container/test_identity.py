"""The configs of a broker by its place in a StatefulSet."""

from __future__ import annotations

import pytest

from penstock.cli.container.identity import Pod, broker_settings, memory_settings, ordinal_of
from penstock.cli.failure import Failure

DOMAIN = "queue-brokers.prod.svc.cluster.local"
VOTERS = ",".join(f"{id_}@queue-{id_}.{DOMAIN}:19092" for id_ in range(3))


def pod(name: str, **others: str) -> Pod:
    return Pod(name=name, domain=DOMAIN, voters=3, internal_port=19092, **others)


def test_the_pods_with_the_lowest_ordinals_vote() -> None:
    first, fourth = (broker_settings(pod(name), (), "a") for name in ("queue-0", "queue-3"))
    assert first == {
        "node.id": "0",
        "controller.quorum.voters": VOTERS,
        "process.roles": "broker,controller",
        "broker.rack": "a",
    }
    assert fourth == {**first, "node.id": "3", "process.roles": "broker"}


def test_addresses_of_listeners() -> None:
    given = ("CLIENT://{pod}.{domain}:9092", "EXTERNAL://{host_ip}:{30090+id}", "PUBLIC://b{id}.example:9")
    found = broker_settings(pod("queue-12", host_ip="192.0.2.7"), given, None)
    assert found["advertised.listeners"] == (
        f"CLIENT://queue-12.{DOMAIN}:9092,EXTERNAL://192.0.2.7:30102,PUBLIC://b12.example:9"
    )
    assert "broker.rack" not in found


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("A://{node}:1", r"has \{node\}; known are domain, host_ip, id, pod"),
        ("A://{host_ip}:1", "needs the host ip, which is not set"),
        ("A://h:{9000+pod}", "only an id can be added to a number"),
    ],
)
def test_a_wrong_template_is_refused(template: str, reason: str) -> None:
    with pytest.raises(Failure, match=reason):
        broker_settings(pod("queue-0"), [template], None)


def test_the_ordinal_of_a_pod() -> None:
    assert ordinal_of("my-queue-10") == 10
    with pytest.raises(Failure, match="'queue' is not the name of a pod of a StatefulSet"):
        ordinal_of("queue")


def test_memory_for_requests_follows_from_the_limit_of_the_container() -> None:
    assert memory_settings(None, {}) == {}
    assert memory_settings(4 << 30, {}) == {}
    small = memory_settings(256 << 20, {})
    assert small == {"queued.max.request.bytes": "67108864", "socket.request.max.bytes": "67108864"}
    assert memory_settings(256 << 20, {"queued.max.request.bytes": "1"}) == {}
    wider = memory_settings(256 << 20, {"socket.request.max.bytes": "80000000"})
    assert wider == {"queued.max.request.bytes": "80000000"}
