"""ElasticMQ, an emulator of SQS: jars from Maven Central. It shows semantics and no speed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lab.foreign import ForeignServer, greets
from lab.maven import jars
from lab.server import HOST, free_port

__all__ = ["VERSION", "elasticmq_server"]

VERSION = "1.7.1"
_HELLO = b"GET /health HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
_MAIN = "org.elasticmq.server.Main"


def elasticmq_server(folder: Path) -> ForeignServer:
    """A server with SQS, in memory, its log in `folder`; `LabError` if it cannot be downloaded."""
    classpath = jars("elasticmq", "elasticmq", f"org.elasticmq:elasticmq-server_2.13:{VERSION}")
    port = free_port()
    settings = {
        "rest-sqs.bind-hostname": HOST,
        "rest-sqs.bind-port": port,
        "rest-stats.enabled": "false",
        # Addresses of queues begin with it.
        "node-address.host": HOST,
        "node-address.port": port,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    program = ["java", "-Xmx128m", "-XX:+UseSerialGC", *options, "-cp", classpath, _MAIN]
    ready = partial(greets, port, _HELLO, b"HTTP/1.1 200")
    log = folder / "elasticmq.log"
    return ForeignServer("elasticmq", port, program, log, start_timeout=60.0, is_ready=ready)
