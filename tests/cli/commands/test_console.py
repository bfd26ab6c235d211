"""`penstock console` and `penstock up --console` as users run them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from penstock.cli import client_config, requirements
from penstock.cli.console_child import client_of, history_of
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
    wanted = "penstock: starlette is missing: pip install 'penstock-mq[console]'\n"
    assert failure(capsys, "console") == (1, wanted)
    assert failure(capsys, "up", "--memory", "--port", "0", "--console") == (1, wanted)


@pytest.mark.parametrize("missing", ["google", "google.protobuf"])
def test_the_console_needs_the_library_of_protobuf(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == missing else find_spec(name))
    wanted = "penstock: protobuf is missing: pip install 'penstock-mq[console]'\n"
    assert failure(capsys, "console") == (1, wanted)


@pytest.fixture
def client_file(tmp_path: Path) -> Iterator[Path]:
    """A file for --command-config, which other tests do not use afterwards."""
    yield tmp_path / "client.properties"
    client_config.use(None)


NO_LOGIN = "any visitor with all rights of this console in the cluster, without a login"


@pytest.mark.parametrize(
    ("protocol", "options", "reasons"),
    [
        ("SASL_SSL", [], ["passwords and messages unencrypted"]),
        ("PLAINTEXT", [], ["passwords and messages unencrypted", NO_LOGIN]),
        ("PLAINTEXT", ["--certificate", "c.pem"], [NO_LOGIN]),
        ("SSL", ["--certificate", "c.pem"], [NO_LOGIN]),
    ],
)
def test_other_machines_need_tls_and_a_login(
    protocol: str,
    options: list[str],
    reasons: list[str],
    client_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client_file.write_text(f"security.protocol={protocol}\nsasl.mechanism=PLAIN\n")
    command = (
        "--command-config",
        str(client_file),
        "console",
        "--host",
        "203.0.113.1",
        "--port",
        "0",
        *options,
    )
    code, line = failure(capsys, *command)
    assert (code, line.count("\n")) == (2, 1)
    assert f"203.0.113.1 would serve {', and '.join(reasons)}: set " in line
    # With the flag the console goes on: this machine does not have the address.
    code, lines = failure(capsys, *command, "--allow-insecure")
    assert (code, "cannot listen on 203.0.113.1" in lines) == (1, True)
    assert f"203.0.113.1 serves {', and '.join(reasons)} (--allow-insecure)" in lines


def test_other_machines_get_no_fault_buttons(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, "console", "--host", "203.0.113.1", "--port", "0", "--faults")
    assert (code, "--faults has buttons that kill brokers" in line) == (2, True)


def test_tls_and_a_login_are_enough_for_other_machines(
    client_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client_file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    options = ("--host", "203.0.113.1", "--port", "0", "--certificate", "c.pem")
    code, line = failure(capsys, "--command-config", str(client_file), "console", *options)
    assert (code, "cannot listen on 203.0.113.1" in line) == (1, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("issuer=https://login.example", "client.id is missing"),
        ("issuer=http://login.example\nclient.id=c\nconsole.url=https://c.example", "must be an https URL"),
        ("issuer=https://login.example\nclient.secret=${file:/nowhere}", "/nowhere, which cannot be read"),
    ],
)
def test_settings_of_single_sign_on_that_are_wrong_are_one_line(
    text: str, reason: str, client_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jwt")
    client_file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
    (tmp_path / "sso").write_text(text)
    options = ("--port", "0", "--sso", str(tmp_path / "sso"))
    code, line = failure(capsys, "--command-config", str(client_file), "console", *options)
    assert (code, line.count("\n"), reason in line) == (2, 1, True), line


def test_single_sign_on_needs_sasl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jwt")
    sso = tmp_path / "sso"
    sso.write_text("issuer=https://login.example\nclient.id=c\nconsole.url=https://c.example\n")
    code, line = failure(capsys, "console", "--port", "0", "--sso", str(sso))
    assert (code, "single sign-on needs security.protocol=SASL_SSL" in line) == (1, True)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("read.only=true", [], "schema.registry.url is missing"),
        ("basic.auth.user.info=ada:s3cret", ["--schema-registry", "http://r.example"], "use https"),
        ("basic.auth.user.info=${file:/nowhere}", [], "/nowhere, which cannot be read"),
        ("ca.location=/nowhere", ["--schema-registry", "https://r.example"], "certificate cannot be used"),
        ("", ["--schema-registry", "http://ada:s3cret@r.example"], "set basic.auth.user.info"),
    ],
)
def test_settings_of_a_schema_registry_that_are_wrong_are_one_line(
    text: str, options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(text)
    file.chmod(0o600)
    command = ("console", "--port", "0", "--schema-registry-config", str(file), *options)
    code, line = failure(capsys, *command)
    assert (code, line.count("\n"), reason in line) == (2, 1, True), line
    assert "s3cret" not in line


def test_credentials_of_a_registry_that_others_can_read_are_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("bearer.auth.token=s3cret\nread.only=maybe\nschema.registry.url=https://r.example\n")
    file.chmod(0o644)
    _, lines = failure(capsys, "console", "--port", "0", "--schema-registry-config", str(file))
    assert ("can read the bearer.auth.token" in lines, "s3cret" in lines) == (True, False)


def test_a_wrong_proxy_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, "console", "--port", "0", "--trusted-proxy", "nowhere")
    assert (code, "--trusted-proxy: 'nowhere' does not appear to be" in line) == (2, True)


@pytest.mark.process
def test_a_console_with_single_sign_on_alone(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    (tmp_path / "client").write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n")
    sso = tmp_path / "sso"
    sso.write_text("issuer=https://login.example\nclient.id=c\nconsole.url=https://c.example\nlabel=Mine\n")
    options = ["--bootstrap", "127.0.0.1:1", "--port", "0", "--sso", str(sso)]
    command = [*PENSTOCK, "--command-config", str(tmp_path / "client"), "console", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[1]
            with urlopen(f"{url}/api/session", timeout=60) as answer:
                session = json.load(answer)
            own = Request(f"{url}/api/session", headers={"Host": "c.example"})
            with urlopen(own, timeout=60) as answer:
                assert answer.status == 200
        finally:
            process.terminate()
            process.communicate()
    assert (session["needs_login"], session["passwords"], session["sso"]) == (True, False, "Mine")


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


def lags_of_a_run(data: Path) -> list[list[float]]:
    """The points of the lag of all groups that a console beside a broker shows; both end afterwards."""
    command = [*PENSTOCK, "up", "--data", str(data), "--port", "0", "--console", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            url = process.stdout.readline().split()[1]
            with urlopen(f"{url}/api/overview", timeout=WAIT_S) as answer:
                points: list[list[float]] = json.load(answer)["series"]["lag"]
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    return points


@pytest.mark.process
def test_the_lag_history_of_a_console_beside_a_broker_survives_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (first,) = lags_of_a_run(data)
    assert (data / "console" / "lags.msgpack").is_file()
    assert lags_of_a_run(data)[0] == first


@pytest.mark.parametrize(
    ("configs", "folder"),
    [
        ({"log.dirs": "/a,/b"}, Path("/a/console")),
        ({"penstock.memory": "true"}, None),
        ({"log.dirs": "/a", "penstock.encryption.keys": "${file:/keys}"}, None),
        ({"log.dirs": "/a", "penstock.encryption.key.provider": "vault-transit"}, None),
    ],
)
def test_the_history_is_in_the_first_data_directory_unless_that_is_encrypted(
    configs: dict[str, str], folder: Path | None
) -> None:
    assert history_of(BrokerConfig(configs)) == folder


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
