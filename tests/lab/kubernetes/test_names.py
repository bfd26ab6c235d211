"""Names of services and pods, and the messages in which they are asked for (RFC 1035)."""

from __future__ import annotations

from lab.kubernetes.names import known_names, respond
from tests.lab.kubernetes.dns_messages import query, read

DOMAIN = "queue.svc.cluster.local"
SERVICES = [
    {"metadata": {"name": "penstock", "namespace": "queue"}, "spec": {"clusterIP": "10.96.1.2"}},
    {"metadata": {"name": "penstock-brokers", "namespace": "queue"}, "spec": {"clusterIP": "None"}},
]
SLICES = [
    {
        "metadata": {"namespace": "queue", "labels": {"kubernetes.io/service-name": "penstock-brokers"}},
        "endpoints": [
            {"hostname": "penstock-0", "addresses": ["10.244.1.2"]},
            {"addresses": ["10.244.9.9"]},
        ],
    },
    {"metadata": {"namespace": "queue"}, "endpoints": None},
]


def test_services_and_pods_of_headless_services_have_names() -> None:
    assert known_names(SERVICES, SLICES) == {
        f"penstock.{DOMAIN}": ["10.96.1.2"],
        f"penstock-0.penstock-brokers.{DOMAIN}": ["10.244.1.2"],
    }


def test_a_known_name_is_answered_in_any_case() -> None:
    names = known_names(SERVICES, SLICES)
    assert read(respond(query(f"Penstock.{DOMAIN}"), names)) == (0, ["10.96.1.2"])


def test_an_unknown_name_does_not_exist() -> None:
    assert read(respond(query("example.com"), known_names(SERVICES, SLICES))) == (3, [])


def test_a_known_name_has_no_other_records() -> None:
    names = known_names(SERVICES, SLICES)
    assert read(respond(query(f"penstock.{DOMAIN}", kind=28), names)) == (0, [])


def test_a_broken_query_is_not_answered() -> None:
    whole = query("a.b")
    for broken in (b"", whole[:8], whole[:-1], whole[:2] + b"\x80\0" + whole[4:]):
        assert respond(broken, {}) is None
