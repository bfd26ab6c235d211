"""A command that no broker accepts names the cause; one that finds none says so."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from penstock.cli.contacts import Contacts
from penstock.testing import BrokerThread
from tests.cli.running import PENSTOCK, WAIT_S, run_here, running_broker
from tests.secured import HOST, broker_of_all_protocols, pki
from tests.waiting import eventually

USER, PASSWORD = "bob", "hunter2"
#: the time that commands would wait for; the cause must be named long before
TIMEOUT = "30"
SOON_S = 15.0


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    with broker_of_all_protocols(USER, PASSWORD) as running:
        yield running


def tls(authority: str) -> str:
    return f"security.protocol=SSL\nssl.truststore.location={pki()[authority]}\n"


def login(password: str) -> str:
    return (
        f"{tls('ca')}security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={USER}\nsasl.password={password}\n"
    )


#: the listener, the client configs, and the words of the failure: the cause and the remedy
CASES: dict[str, tuple[str, Callable[[], str], list[str]]] = {
    "wrong password": (
        "SASL_SSL",
        lambda: login("wrong"),
        ["refuses the login", "invalid credentials", "check the user, the password"],
    ),
    "plaintext to TLS": ("TLS", str, ["expects TLS", "set security.protocol to SSL or SASL_SSL"]),
    "wrong authority": (
        "TLS",
        lambda: tls("other-ca"),
        ["the certificate of", "self-signed certificate in certificate chain", "ssl.truststore.location"],
    ),
    "no login": ("LOGIN", str, ["expects a login (PLAIN, SCRAM-SHA-512)", "SASL_PLAINTEXT"]),
    "TLS to plaintext": ("OPEN", lambda: tls("ca"), ["does not use TLS", "PLAINTEXT"]),
}
#: through librdkafka, and over connections of our own
COMMANDS = {
    "topic list": ["topic", "list"],
    "consume": ["consume", "orders"],
    "produce": ["produce", "orders"],
    "health": ["cluster", "status"],
}


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("case", sorted(CASES))
def test_a_command_names_the_cause(
    secured: BrokerThread, command: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, settings, words = CASES[case]
    port = next(each.port for each in secured.broker.stages.listening.listeners if each.name == name)
    file = tmp_path / "client.properties"
    file.write_text(settings())
    file.chmod(0o600)
    began = time.monotonic()
    arguments = [*COMMANDS[command], "--bootstrap", f"{HOST}:{port}", "--timeout", TIMEOUT]
    assert run_here("--command-config", str(file), *arguments) == 1
    assert time.monotonic() - began < SOON_S
    (line,) = capsys.readouterr().err.splitlines()
    for word in [*words, f"{HOST}:{port}", "--command-config"]:
        assert word in line


@pytest.mark.parametrize("listens", [True, False])
def test_all_brokers_are_down_if_no_bootstrap_address_listens(listens: bool) -> None:
    """librdkafka reports it, too, while those are down that it has tried of a cluster that has others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        contacts = Contacts(f"127.0.0.1:1, 127.0.0.1:{port}", {})
        contacts.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert contacts.is_unreachable() is not listens


@pytest.mark.process
def test_consume_reports_a_lost_broker_and_continues(tmp_path: Path) -> None:
    with running_broker("--data", str(tmp_path / "data")) as (first, address):
        _produce(address, "early")
        errors = tmp_path / "errors"
        with (
            errors.open("w") as sink,
            subprocess.Popen(
                [*PENSTOCK, "consume", "orders", "-n", "2", "--from-beginning", "--bootstrap", address],
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
            ) as consumer,
        ):
            try:
                assert consumer.stdout is not None
                assert consumer.stdout.readline() == "early\n"
                first.kill()
                first.wait()
                eventually(lambda: f"no broker answers at {address}: still trying" in errors.read_text())
                port = address.rpartition(":")[2]
                with running_broker("--data", str(tmp_path / "data"), "--port", port):
                    _produce(address, "late")
                    output, _ = consumer.communicate(timeout=WAIT_S)
                    assert (consumer.returncode, output) == (0, "late\n")
            finally:
                consumer.kill()


def _produce(address: str, message: str) -> None:
    command = [*PENSTOCK, "produce", "orders", "--bootstrap", address]
    subprocess.run(command, input=f"{message}\n", text=True, check=True, capture_output=True, timeout=WAIT_S)
