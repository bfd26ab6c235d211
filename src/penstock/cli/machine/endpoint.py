"""The metrics and the health of all brokers of a machine, on one HTTP port.

`/healthz` shows that the supervisor runs, `/readyz` that every broker accepts connections, `/health` the
reports of all brokers with the worst level, `/metrics` their samples with a label `broker`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from penstock.broker.monitoring.documents import ALIVE, LIVENESS, Document, plain_text
from penstock.broker.monitoring.http_server import HttpServer, Policy
from penstock.model.config.listeners import is_loopback
from penstock.model.config.monitoring_keys import MetricsAddress
from penstock.observability.exposition import Format, labelled
from penstock.observability.health import Level
from penstock.observability.health_merge import BrokerReport, merged, report_in
from penstock.observability.http import Request
from penstock.observability.merging import merged_pages

__all__ = ["Endpoint", "fetched"]

_TIMEOUT_S: Final = 5.0
_CONNECTIONS: Final = 16
_JSON: Final = "application/json"
_SILENT: Final = "the broker does not answer"
_METRICS: Final = ("/metrics", "/metrics/kafka")


class Endpoint:
    """Serves from `start` to `stop`. `ports` has the monitoring port of each broker that runs."""

    def __init__(
        self,
        machine: str,
        brokers: Callable[[], list[int]],
        unready: Callable[[], list[int]],
        ports: Callable[[], Mapping[int, int]],
        restarts: Callable[[], Mapping[int, int]],
        *,
        token: str | None,
        own_token: str,
    ) -> None:
        """`token` is what scrapers send, and None if any may read; `own_token` is that of the brokers."""
        self._machine = machine
        self._brokers = brokers
        self._unready = unready
        self._ports = ports
        self._restarts = restarts
        self._token = token
        self._own_token = own_token
        self._server: HttpServer | None = None

    async def start(self, address: MetricsAddress, common_port: int) -> str:
        """Bind the port; returns its address. One that is taken is replaced if the address is optional."""
        policy = Policy(connections_max=_CONNECTIONS, token=self._token, local_only=is_loopback(address.host))
        self._server = HttpServer(self.get, policy)
        try:
            port = await self._server.start(address.host, address.port_beside(common_port))
        except OSError:
            if not address.optional:
                raise
            port = await self._server.start(address.host, 0)
        return f"http://{address.host}:{port}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    async def get(self, request: Request) -> Document:
        """The document of a request's path."""
        if request.path == LIVENESS:
            return ALIVE
        if request.path == "/readyz":
            return self._ready()
        if request.path == "/health":
            return await self._health()
        if request.path in _METRICS:
            return await self._metrics(request.path)
        known = ", ".join((LIVENESS, "/readyz", "/health", *_METRICS))
        return plain_text(HTTPStatus.NOT_FOUND, f"unknown path; there are {known}\n")

    def _ready(self) -> Document:
        unready = self._unready()
        if unready:
            names = ", ".join(map(str, unready))
            return plain_text(
                HTTPStatus.SERVICE_UNAVAILABLE, f"broker(s) {names} do not accept connections\n"
            )
        return plain_text(HTTPStatus.OK, "ready\n")

    async def _health(self) -> Document:
        answers = await self._from_all("/health")
        documents: dict[str, Any] = {str(id_): json.loads(body) for id_, body in answers.items() if body}
        reports = [report_in(int(id_), each) for id_, each in documents.items()]
        for id_ in self._brokers():
            if str(id_) not in documents:
                documents[str(id_)] = {"status": Level.UNHEALTHY, "reason": _SILENT}
                reports.append(BrokerReport(id_, silence=_SILENT))
        found = merged(reports)
        level = found.level
        document = {
            "status": level,
            "reasons": found.reasons,
            "machine": self._machine,
            "restarts": {str(id_): count for id_, count in self._restarts().items()},
            "brokers": documents,
        }
        well = level in (Level.HEALTHY, Level.DEGRADED)
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Document(status, _JSON, [json.dumps(document, indent=2).encode() + b"\n"])

    async def _metrics(self, path: str) -> Document:
        answers = await self._from_all(path)
        pages = {id_: body.decode() for id_, body in answers.items() if body}
        lines = [*self._own_lines(), *merged_pages(pages)]
        return Document(HTTPStatus.OK, Format.PROMETHEUS.value, ["".join(f"{e}\n" for e in lines).encode()])

    def _own_lines(self) -> list[str]:
        """The supervisor's own families."""
        running = self._ports()
        return [
            "# HELP penstock_machine_broker_up Whether the broker of a core runs.",
            "# TYPE penstock_machine_broker_up gauge",
            *(f"penstock_machine_broker_up{labelled(broker=e)} {int(e in running)}" for e in self._brokers()),
            "# HELP penstock_machine_broker_restarts_total How often the broker was started again.",
            "# TYPE penstock_machine_broker_restarts_total counter",
            *(
                f"penstock_machine_broker_restarts_total{labelled(broker=id_)} {count}"
                for id_, count in self._restarts().items()
            ),
        ]

    async def _from_all(self, path: str) -> dict[int, bytes]:
        """The bodies of a document of all brokers that answer in time."""
        ports = dict(self._ports())
        bodies = await asyncio.gather(*(fetched(port, path, self._own_token) for port in ports.values()))
        return {id_: body for id_, body in zip(ports, bodies, strict=True) if body is not None}


async def fetched(port: int, path: str, token: str) -> bytes | None:
    """A document of a broker's monitoring port on loopback; None without an answer in time."""
    fields = ("Host: 127.0.0.1", "Connection: close", f"Authorization: Bearer {token}")
    head = "\r\n".join((f"GET {path} HTTP/1.1", *fields, "", ""))
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.encode())
            answer = await reader.read()
    except (OSError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.close()
    status, _, rest = answer.partition(b"\r\n")
    # A broker that is unhealthy says so with 503 and the same document.
    if status.split(b" ")[1:2] not in ([b"200"], [b"503"]):
        return None
    return rest.partition(b"\r\n\r\n")[2]
