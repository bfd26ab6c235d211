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


def elasticmq_server(folder: Path, *, is_durable: bool = False) -> ForeignServer:
    """A server with SQS, in memory or durable, its files in `folder`; `LabError` if it cannot be downloaded.

    After a restart a durable server accepts clients a moment before it has restored its queues.
    """
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
    if is_durable:
        storage = {
            "enabled": "true",
            "driver-class-name": "org.h2.Driver",
            # Written before a message is acknowledged; by default half a second later.
            "uri": f"jdbc:h2:{folder / 'messages'};WRITE_DELAY=0",
            "username": "lab",
            "password": "lab",
            "prune-data-on-init": "false",
        }
        settings |= {f"messages-storage.{name}": value for name, value in storage.items()}
    options = [f"-D{name}={value}" for name, value in settings.items()]
    program = ["java", "-Xmx128m", "-XX:+UseSerialGC", *options, "-cp", classpath, _MAIN]
    ready = partial(greets, port, _HELLO, b"HTTP/1.1 200")
    log = folder / "elasticmq.log"
    return ForeignServer("elasticmq", port, program, log, start_timeout=60.0, is_ready=ready)
