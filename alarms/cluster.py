"""Three brokers as processes, with faults on request, and clients that keep them busy."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from alarms.broker import FAULTS, SECOND
from alarms.neighbours import Neighbours
from lab.cluster import penstock_cluster
from lab.server import HOST, Server, free_ports
from penstock.security.certificates import issue, new_authority

__all__ = ["Cluster", "Writer"]

_SETTINGS: Final = {
    # A broker with TLS and logins would serve no metrics without a token. Empty: they are open.
    "penstock.metrics.token": "",
    # Responses wait for syncs, so that a slow disk makes slow requests.
    "penstock.flush": "group",
    "penstock.scrub.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.max.timeout.ms": "5000",
    "transaction.two.phase.commit.enable": "true",
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
#: few enough for a fault to use most of them
_DESCRIPTORS_MAX: Final = 1024
#: a listener of the first broker that only clients with a password use
_LOGIN: Final = "SASL_PLAINTEXT"
_USERS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="right";'
ORDERS, SINGLE, STRICT, DAMAGED, JOBS = "orders", "single", "strict", "damaged", "jobs"
#: a topic whose old segments are in the archive only
TIERED: Final = "tiered"
#: segments of some seconds, of which two stay on the disks
_TIERED_CONFIG: Final = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "300000",
    "local.retention.bytes": "600000",
}
#: days that certificates are valid: the alert fires at 14
LONG_DAYS, SHORT_DAYS = 100, 3
_TIMEOUT_S: Final = 30.0


class Writer:
    """Writes a record every few milliseconds from `start` to `stop`; may be started again."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._topics = topics
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.01):
            for topic in self._topics:
                try:
                    self._producer.produce(topic, b"x" * 500)
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)


class Receiver:
    """An OpenTelemetry receiver that takes everything, or refuses it while `is_refusing`."""

    def __init__(self) -> None:
        self.is_refusing = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(503 if receiver.is_refusing else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None: ...

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Cluster:
    """Use it in a `with`: leaving it stops every process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "neighbours").mkdir()
        self.neighbours = Neighbours(home / "neighbours")
        archive = {"penstock.remote.log.address": str(self.neighbours.archive)}
        self._cluster = penstock_cluster(home, {**_SETTINGS, **archive})
        self._authority = new_authority("alarms", datetime.now(UTC), days=LONG_DAYS)
        self.issue_certificate(LONG_DAYS)
        self._tls_port, self._login_port = free_ports(2)
        #: of each broker; below the ephemeral ports, so that no outgoing connection has one of them
        self._monitoring_ports = free_ports(len(self.servers))
        self.receiver = Receiver()
        for number, server in enumerate(self.servers, 1):
            self._adapt(number, server)
        self.writer = Writer(self.bootstrap, (ORDERS, TIERED))

    @property
    def servers(self) -> list[Server]:
        return self._cluster.brokers

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def login_address(self) -> str:
        """The address where clients need a user and a password."""
        return f"{HOST}:{self._login_port}"

    @property
    def targets(self) -> list[str]:
        """The addresses of the monitoring ports."""
        return [f"{HOST}:{port}" for port in self._monitoring_ports]

    @property
    def others(self) -> dict[str, list[str]]:
        """The jobs beside that of the brokers, with their targets."""
        return {"penstock-backup": [self.neighbours.backup_target]}

    def __enter__(self) -> Self:
        self._cluster.start()
        try:
            self._create_topics()
            self.neighbours.start(self.bootstrap)
            self.writer.start()
        except BaseException:
            self.neighbours.stop()
            self._cluster.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.stop()
        self.receiver.close()
        self.neighbours.stop()
        for server in self.servers:
            if server.runs():
                server.kill()

    def _adapt(self, number: int, server: Server) -> None:
        """Have the broker start with faults: the first one has TLS and logins, the second one two disks."""
        home = self._home / f"broker-{number}"
        (home / "faults").mkdir()
        path = home / "server.properties"
        configs = dict(line.split("=", 1) for line in path.read_text().splitlines())
        configs["penstock.metrics.listener"] = f"{HOST}:{self._monitoring_ports[number - 1]}"
        if number == 1:
            configs["listeners"] += f",SSL://{HOST}:{self._tls_port},{_LOGIN}://{HOST}:{self._login_port}"
            configs["advertised.listeners"] = configs["listeners"]
            configs["ssl.keystore.type"] = "PEM"
            configs["ssl.keystore.location"] = str(self._home / "broker.pem")
            configs["sasl.enabled.mechanisms"] = "PLAIN"
            configs[f"listener.name.{_LOGIN.lower()}.plain.sasl.jaas.config"] = _USERS
            configs["penstock.otlp.endpoint"] = self.receiver.address
        if number == 2:
            configs["log.dirs"] += f",{home / SECOND}"
        path.write_text("".join(f"{key}={value}\n" for key, value in configs.items()))
        limited = ["prlimit", f"--nofile={_DESCRIPTORS_MAX}", "--"]
        server.command = [*limited, sys.executable, "-m", "alarms.broker", "up", "--config", str(path)]
        server.environment = {FAULTS: str(home / "faults")}

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topics = [
            NewTopic(ORDERS, 6, 3),
            NewTopic(SINGLE, 1, replica_assignment=[[3]]),
            NewTopic(STRICT, 1, 3, config={"min.insync.replicas": "3"}),
            NewTopic(DAMAGED, 1, 3, config={"segment.bytes": str(1 << 20)}),
            NewTopic(JOBS, 1, 3),
            NewTopic(TIERED, 1, 3, config=_TIERED_CONFIG),
        ]
        for future in admin.create_topics(topics).values():
            future.result(_TIMEOUT_S)
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        for _ in range(50):
            producer.produce(DAMAGED, b"x" * 100_000)
        producer.produce(STRICT, b"x")
        producer.produce(SINGLE, b"x")
        producer.produce(JOBS, b"x")
        assert producer.flush(_TIMEOUT_S) == 0

    def mark(self, number: int, fault: str) -> None:
        (self._home / f"broker-{number}" / "faults" / fault).touch()

    def unmark(self, number: int, fault: str) -> None:
        (self._home / f"broker-{number}" / "faults" / fault).unlink(missing_ok=True)

    def issue_certificate(self, days: int) -> None:
        made = issue(self._authority, "broker", datetime.now(UTC), hosts=[HOST], days=days)
        (self._home / "broker.pem").write_text(made.key + made.certificate, encoding="utf-8")

    def damage(self, number: int) -> None:
        """Flip a byte in the middle of the first sealed segment of a replica."""
        home = self._home / f"broker-{number}"
        segment = min(home.glob(f"data*/topics/{DAMAGED}/partition-0/*.log"))
        with segment.open("r+b") as file:
            file.seek(segment.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 0xFF]))

    def tiered_start(self) -> int:
        """Where the records of the tiered topic start on the disk that has most of them."""
        homes = [self._home / f"broker-{number}" for number, _ in enumerate(self.servers, 1)]
        return min(
            min((int(path.stem) for path in home.glob(f"data*/topics/{TIERED}/partition-0/*.log")), default=0)
            for home in homes
        )

    def wait_ready(self) -> None:
        self._cluster.wait_ready()

    def health(self) -> dict[int, dict[str, Any]]:
        """The health reports by broker; without those that do not respond."""
        found: dict[int, dict[str, Any]] = {}
        for number, port in enumerate(self._monitoring_ports, 1):
            connection = http.client.HTTPConnection(HOST, port, timeout=2)
            try:
                connection.request("GET", "/health")
                found[number] = json.loads(connection.getresponse().read())
            except OSError:
                continue
            finally:
                connection.close()
        return found
