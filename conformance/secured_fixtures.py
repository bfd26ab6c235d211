"""A pytest plugin for kafka-python's tests of TLS and SASL: their broker fixture starts Penstock.

Other tests of that suite use a broker that runs already. These start one for each transport and mechanism.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__all__ = ["pytest_collection"]


def pytest_collection() -> None:
    """Replace the methods that start, stop and look into a broker."""
    from test.integration.fixtures import KafkaFixture  # type: ignore[import-not-found]

    KafkaFixture.open = KafkaFixture.start = _start
    KafkaFixture.stop = KafkaFixture.close = _stop
    KafkaFixture.__del__ = lambda fixture: None
    KafkaFixture.get_topic_names = _topic_names


def _start(fixture: Any) -> None:
    if fixture.running:
        return
    from penstock.testing import broker

    config = {
        "listeners": f"{fixture.transport}://127.0.0.1:{fixture.port}",
        "advertised.listeners": f"{fixture.transport}://localhost:{fixture.port}",
        "num.partitions": str(fixture.partitions),
        **(_tls(fixture) if fixture.ssl_enabled else {}),
    }
    if fixture.sasl_enabled:
        users = f'x required user_{fixture.broker_user}="{fixture.broker_password}";'
        config |= {"sasl.enabled.mechanisms": fixture.sasl_mechanism, "sasl.jaas.config": users}
    fixture.resources = ExitStack()
    fixture.resources.enter_context(broker(config=config))
    fixture.child = SimpleNamespace(dump_logs=lambda: None)
    fixture.running = True


def _tls(fixture: Any) -> dict[str, str]:
    """Certificates in the folder of the fixture, under the name that the tests look for."""
    from penstock.security.certificates import issue, new_authority

    now = datetime.now(UTC)
    folder = Path(str(fixture.tmp_dir)) / "ssl"
    folder.mkdir(parents=True, exist_ok=True)
    fixture.ssl_dir = str(folder)
    authority = new_authority("kafka-python", now, days=1)
    (folder / "ca-cert").write_text(authority.certificate)
    (folder / "server.pem").write_text(issue(authority, "broker", now, hosts=["localhost"]).keystore)
    return {"ssl.keystore.location": str(folder / "server.pem")}


def _stop(fixture: Any) -> None:
    if fixture.running:
        fixture.running = False
        fixture.resources.close()


def _topic_names(fixture: Any) -> list[str]:
    from kafka import KafkaAdminClient

    with KafkaAdminClient(**fixture._enrich_client_params({})) as admin:
        found: list[str] = admin.list_topics()
    return found
