"""Requests to the API of Kubernetes, answered by a server with TLS."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.container.kubernetes import KubernetesApi, Unreachable
from penstock.cli.container.stopping import Fate, StatefulSet, fate_of
from penstock.cli.container.zone import LABEL, zone_of
from penstock.cli.failure import Failure
from tests.cli.container.authority import certificate

TOKEN = "a token"
NODES = "/api/v1/nodes"


class Answers(http.server.BaseHTTPRequestHandler):
    objects: dict[str, Any]

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(403)
        elif found is None:
            self.send_error(404)
        else:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def api(folder: Path, objects: dict[str, Any]) -> Iterator[KubernetesApi]:
    """An API server with some objects, by path."""
    both = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    handler = type("Objects", (Answers,), {"objects": objects})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(TOKEN)
    (account / "ca.crt").write_bytes(both.read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    try:
        yield KubernetesApi(environment, account)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def test_objects_are_read_with_the_token_of_the_pod(tmp_path: Path) -> None:
    with api(tmp_path, {f"{NODES}/n1": {"kind": "Node"}}) as found:
        assert found.is_there
        assert found.get(f"{NODES}/n1") == {"kind": "Node"}
        assert found.get(f"{NODES}/n2") is None
        (tmp_path / "account/token").write_text("another")
        with pytest.raises(Unreachable, match="refuses /api/v1/nodes/n1: 403"):
            found.get(f"{NODES}/n1")


def test_a_server_with_another_certificate_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with api(tmp_path, {f"{NODES}/n1": {}}) as found:
        (tmp_path / "account/ca.crt").write_bytes(certificate(tmp_path / "other").read_bytes())
        with pytest.raises(Unreachable, match="does not answer"):
            found.get(f"{NODES}/n1")


def test_outside_of_a_pod_there_is_no_api(tmp_path: Path) -> None:
    assert not KubernetesApi({}, tmp_path).is_there


def test_the_zone_of_a_node(tmp_path: Path) -> None:
    node = {"metadata": {"labels": {LABEL: "eu-1a"}}}
    with api(tmp_path, {f"{NODES}/n1": node, f"{NODES}/n2": {"metadata": {}}}) as found:
        assert zone_of("n1", None, 0, found) == "eu-1a"
        assert zone_of("n2", None, 0, found) is None


def test_the_zone_is_remembered_while_the_api_is_away(tmp_path: Path) -> None:
    memory, node = tmp_path / "volume", {"metadata": {"labels": {LABEL: "eu-1b"}}}
    memory.mkdir()
    with api(tmp_path, {f"{NODES}/n1": node}) as found:
        zone_of("n1", memory, 0, found)
    assert zone_of("n1", memory, 0, found) == "eu-1b"
    now = iter(range(100))
    with pytest.raises(Failure, match=r"the zone of node n1 is not known: .* does not answer"):
        zone_of("n1", None, 5, found, sleep=lambda _: None, clock_s=lambda: next(now))


def test_how_many_pods_are_wanted(tmp_path: Path) -> None:
    path = "/apis/apps/v1/namespaces/prod/statefulsets"
    objects = {
        f"{path}/queue": {"metadata": {}, "spec": {"replicas": 5}},
        f"{path}/ending": {"metadata": {"deletionTimestamp": "now"}, "spec": {"replicas": 5}},
        "/api/v1/namespaces/prod/pods/queue-4": {},
    }
    with api(tmp_path, objects) as found:
        queue = StatefulSet("prod", "queue", found)
        assert queue.wanted() == 5
        assert queue.has_pod(4)
        assert not queue.has_pod(5)
        assert StatefulSet("prod", "ending", found).wanted() == 0
        assert StatefulSet("prod", "none", found).wanted() == 0


@pytest.mark.parametrize(
    ("ordinal", "wanted", "fate"),
    [(3, 5, Fate.RETURNS), (3, 3, Fate.LEAVES), (4, 3, Fate.LEAVES), (1, 1, Fate.RETURNS), (1, 0, Fate.ENDS)],
)
def test_the_fate_of_a_pod(ordinal: int, wanted: int, fate: Fate) -> None:
    """A voter never leaves, so broker 1 of 3 voters stays registered if the set has one pod."""
    assert fate_of(ordinal, wanted, 3) is fate
