"""`penstock console` and `penstock up --console` as users run them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from penstock.cli import requirements
from penstock.cli.console_child import client_of
from penstock.cli.failure import Failure
from penstock.model.config import BrokerConfig
from penstock.testing.security import SECURE_LISTENER, new_security
from tests.cli.running import PENSTOCK, WAIT_S, run_here


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run_here(*arguments)
    output, errors = capsys.readouterr()
    assert output == ""
    return code, errors


def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda _: None)
    wanted = "penstock: starlette is missing: pip install 'penstock[console]'\n"
    assert failure(capsys, "console") == (1, wanted)
    assert failure(capsys, "up", "--memory", "--port", "0", "--console") == (1, wanted)


def test_other_machines_need_tls(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, "console", "--host", "0.0.0.0")
    assert (code, line.count("\n")) == (2, 1)
    assert "set --certificate" in line


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, "console", "--host", "203.0.113.1", "--allow-insecure", "--port", "0")
    assert code == 1
    assert "cannot listen on 203.0.113.1" in line


@pytest.mark.process
def test_a_broker_with_its_console_ends_with_it() -> None:
    command = [*PENSTOCK, "up", "--memory", "--port", "0", "--console", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready 127.0.0.1:")
            word, url = process.stdout.readline().split()
            assert word == "console"
            with urlopen(f"{url}/api/overview", timeout=WAIT_S) as answer:
                assert json.load(answer)["health"]["level"] == "Healthy"
            process.send_signal(signal.SIGTERM)
            # The console has the same standard output: the end of the stream is the end of both.
            output, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "")
    assert "Traceback" not in errors


@pytest.mark.process
def test_the_console_of_a_secured_broker_has_a_login(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    security = new_security("127.0.0.1")
    settings = {**security.brokers, "listeners": f"{SECURE_LISTENER}://127.0.0.1:0"}
    config = tmp_path / "broker.yaml"
    config.write_text(json.dumps(settings))
    config.chmod(0o600)
    command = [*PENSTOCK, "up", "--memory", "--config", str(config), "--console", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready 127.0.0.1:")
            word, url = process.stdout.readline().split()
            assert word == "console"
            login = {"user": "admin", "password": security.client["sasl.password"]}
            headers = {"x-penstock-console": "1", "content-type": "application/json"}
            request = Request(f"{url}/api/login", json.dumps(login).encode(), headers)
            with urlopen(request, timeout=WAIT_S) as answer:
                cookie = answer.headers["set-cookie"].partition(";")[0]
            overview = Request(f"{url}/api/overview", headers={"cookie": cookie})
            with urlopen(overview, timeout=WAIT_S) as answer:
                assert json.load(answer)["health"]["level"] == "Healthy"
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, "Traceback" in errors) == (0, False)


def test_a_console_gets_no_secret_of_the_broker(tmp_path: Path) -> None:
    keystore = tmp_path / "keystore.pem"
    keystore.write_text(f"-----BEGIN PRIVATE KEY-----\nS3CRET\n-----END PRIVATE KEY-----\n{_PEM}\n")
    broker = BrokerConfig(
        {
            "listeners": "SASL_SSL://127.0.0.1:9093",
            "ssl.keystore.location": str(keystore),
            "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
            "sasl.jaas.config": 'ScramLoginModule required user_admin="S3CRET";',
        }
    )
    client = client_of(broker)
    assert client.configs == {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}
    assert client.trusted == _PEM


def test_a_listener_that_needs_a_client_certificate_is_refused() -> None:
    broker = BrokerConfig({"listeners": "SSL://127.0.0.1:9093", "ssl.client.auth": "required"})
    with pytest.raises(Failure, match="has no client certificate"):
        client_of(broker)


_PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"


@pytest.mark.process
def test_a_console_ends_on_a_signal_with_an_open_page() -> None:
    command = [*PENSTOCK, "console", "--bootstrap", "127.0.0.1:1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, url = process.stdout.readline().split()
            assert word == "ready"
            with urlopen(f"{url}/api/live", timeout=WAIT_S) as stream:
                assert stream.readline() == b"retry: 2000\n"
                process.send_signal(signal.SIGINT)
                output, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (0, "", "")
