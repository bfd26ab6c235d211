"""The server of external metrics, asked over TLS with and without the certificate of an API server."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.container.external_metrics import PATH
from penstock.cli.container.kubernetes import KubernetesApi
from penstock.cli.container.loads import LAG, LOAD, Taken, taken
from penstock.cli.container.metrics_server import Brokers, Front, LoadWatch, front_of, metrics_server
from penstock.cli.failure import Failure
from penstock.security.certificates import Issued, issue, new_authority

HOST = "127.0.0.1"
NOW = datetime.now(UTC)
PAGE = "penstock_cpu_seconds_total {cpu}\npenstock_start_time_seconds 1\n"


class Running(NamedTuple):
    folder: Path
    port: int
    #: of the brokers and the server
    authority: Issued
    #: of the API server
    front: Issued

    def get(self, path: str, certificate: Issued | None) -> tuple[int, Any]:
        context = ssl.create_default_context(cadata=self.authority.certificate)
        if certificate is not None:
            file = self.folder / "client.pem"
            file.write_text(certificate.keystore)
            context.load_cert_chain(file)
        connection = HTTPSConnection(HOST, self.port, timeout=30, context=context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def watched() -> LoadWatch:
    """Broker 0 uses a quarter of a core."""
    pages = iter([{0: taken(PAGE.format(cpu=1), 0.0)}, {0: taken(PAGE.format(cpu=3.5), 10.0)}])
    watch = LoadWatch(lambda: next(pages), interval_s=3600)
    watch.sample()
    watch.sample()
    return watch


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    authority, front = new_authority("brokers", NOW), new_authority("front", NOW)
    keystore = tmp_path / "server.pem"
    keystore.write_text(issue(authority, "broker", NOW, hosts=[HOST]).keystore)
    allowed = Front(front.certificate, ("front-proxy-client",))
    server = metrics_server(0, keystore, allowed, "queue", watched())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Running(tmp_path, server.server_address[1], authority, front)
    server.shutdown()
    server.server_close()


def test_the_api_server_gets_the_load(running: Running) -> None:
    certificate = issue(running.front, "front-proxy-client", NOW)
    status, found = running.get(f"{PATH}/namespaces/queue/{LOAD}", certificate)
    assert status == 200
    assert [(each["metricLabels"], each["value"]) for each in found["items"]] == [({"broker": "0"}, "250m")]


def test_a_probe_without_a_certificate_gets_health_and_nothing_else(running: Running) -> None:
    assert running.get("/healthz", None) == (200, {"status": "ok"})
    assert running.get(PATH, None)[0] == 401


def test_a_certificate_of_the_authority_with_another_name_is_refused(running: Running) -> None:
    assert running.get(PATH, issue(running.front, "some-client", NOW))[0] == 401


def test_a_certificate_of_another_authority_is_refused(running: Running) -> None:
    stranger = issue(new_authority("strangers", NOW), "front-proxy-client", NOW)
    with pytest.raises((OSError, HTTPException)):
        running.get(PATH, stranger)


def test_values_that_are_too_old_count_for_nothing() -> None:
    pages = {0: taken(PAGE.format(cpu=1) + f'{LAG}{{group="a",topic="b"}} 5\n', 0.0)}
    fresh, old = (LoadWatch(lambda: pages, interval_s=each) for each in (3600, 0))
    for watch in (fresh, old):
        watch.sample()
    assert len(fresh.values()[0][LAG]) == 1
    assert old.values()[0][LAG] == ()


def test_a_broker_that_refuses_is_left_out_and_its_reason_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = iter([HTTPStatus.UNAUTHORIZED, HTTPStatus.UNAUTHORIZED, HTTPStatus.OK, HTTPStatus.OK])

    class Broker(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(next(statuses))
            self.end_headers()
            self.wfile.write(PAGE.format(cpu=1).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Not to the output that is compared."""

    issuer = new_authority("brokers", NOW)
    keystore, token, authority = tmp_path / "server.pem", tmp_path / "token", tmp_path / "ca.pem"
    keystore.write_text(issue(issuer, "broker", NOW, hosts=[HOST]).keystore)
    token.write_text("secret")
    authority.write_text(issuer.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)
    with ThreadingHTTPServer((HOST, 0), Broker) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        brokers = Brokers(lambda: 1, HOST, server.server_address[1], token, authority)
        found: list[Mapping[int, Taken]] = [brokers.pages() for _ in range(4)]
        server.shutdown()
    assert [sorted(each) for each in found] == [[], [], [0], [0]]
    assert capsys.readouterr().out.splitlines() == [
        "the metrics of broker 0 cannot be read: HTTP 401 Unauthorized",
        "the metrics of broker 0 are read again",
    ]


class Api(KubernetesApi):
    def __init__(self, found: dict[str, Any] | None) -> None:
        self.found = found

    def get(self, path: str) -> dict[str, Any] | None:
        assert path.endswith("/kube-system/configmaps/extension-apiserver-authentication")
        return self.found


def test_the_api_server_says_how_it_proves_itself() -> None:
    data = {"requestheader-client-ca-file": "PEM", "requestheader-allowed-names": '["front-proxy-client"]'}
    assert front_of(Api({"data": data})) == Front("PEM", ("front-proxy-client",))
    with pytest.raises(Failure, match="does not say how it proves itself"):
        front_of(Api(None))
