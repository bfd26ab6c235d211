"""Keys of data directories from a command, from Vault, and from AWS KMS."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from lab.foreign import started
from lab.home import LabError
from lab.moto import moto_built, moto_python, moto_server
from lab.vault import Vault, vault_built, vault_program
from penstock.broker.base import key_providers
from penstock.broker.base.encrypted_disks import with_encryption
from penstock.broker.base.key_providers import AwsKms, VaultTransit, key_provider, keys_text
from penstock.broker.base.system_ports import OsFiles
from penstock.cli.data_files import use_keys
from penstock.encryption import KEYS
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import MissingKey
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidConfig, PenstockError
from penstock.testing import broker
from tests.broker.encrypted_brokers import COUNT, VALUE, config, fill, read, readable
from tests.cli.running import run_here
from tests.encryption.keyring import NEW, OLD

ROOT = Path(__file__).parents[3]
ALL = os.environ.get("PENSTOCK_KEY_SERVICES") == "1"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(key_providers, "_PAUSE_S", 0.01)
    yield
    use_keys(None)


# -- a command


def by_command(command: str, timeout_ms: int = 10_000) -> BrokerConfig:
    return BrokerConfig(
        {
            "penstock.encryption.key.provider": "command",
            "penstock.encryption.key.command": command,
            "penstock.encryption.key.timeout.ms": str(timeout_ms),
        }
    )


@pytest.mark.process
def test_a_command_writes_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "the keys"
    path.write_text(f"{NEW}\n{OLD}\n")
    assert keys_text(by_command(f"cat {shlex.quote(str(path))}")) == f"{NEW}\n{OLD}\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("false", "its exit status is 1"),
        ("true", "it has written nothing"),
        ("sleep 60", r"it has not ended after 0\.2 seconds"),
        ("/does/not/exist", "No such file"),
        ("'", "No closing quotation"),
    ],
)
def test_a_command_without_keys_is_one_line(command: str, reason: str) -> None:
    with pytest.raises(PenstockError, match=f"penstock.encryption.key.command has no keys: .*{reason}") as no:
        keys_text(by_command(command, 2000 if "sleep" not in command else 200))
    assert "\n" not in str(no.value)


@pytest.mark.process
def test_output_of_a_failed_command_is_not_shown(tmp_path: Path) -> None:
    script = tmp_path / "keys.sh"
    script.write_text(f"echo {OLD}; echo {OLD} >&2; exit 3\n")
    with pytest.raises(PenstockError) as no:
        keys_text(by_command(f"sh {script}"))
    assert OLD not in str(no.value) and "exit status is 3" in str(no.value)


@pytest.mark.process
def test_a_broker_takes_its_keys_from_a_command(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(OLD)
    settings = {
        **config(None),
        "penstock.encryption.key.provider": "command",
        "penstock.encryption.key.command": f"cat {path}",
    }
    with broker(data=tmp_path / "data", config=settings) as running:
        fill(running)
    assert readable(tmp_path / "data") == set()
    path.write_text(NEW)
    with pytest.raises(MissingKey), broker(data=tmp_path / "data", config=settings):
        pass


@pytest.mark.parametrize(
    ("provider", "missing"),
    [
        ("command", "penstock.encryption.key.command"),
        ("vault-transit", "penstock.encryption.vault.address"),
        ("aws-kms", "penstock.encryption.key.id"),
    ],
)
def test_settings_of_a_provider_are_needed(provider: str, missing: str) -> None:
    settings = BrokerConfig({"penstock.encryption.key.provider": provider})
    with pytest.raises(InvalidConfig, match=f"provider={provider} needs {missing}"):
        if key_provider(settings) is None:
            keys_text(settings)


# -- Vault: a server that fails


class Failing(HTTPServer):
    """Answers with the statuses in turn, and then with a redirect to itself."""

    statuses: list[int]
    seen: list[str]
    body = b"{}"


class _Handler(BaseHTTPRequestHandler):
    server: Failing

    def do_POST(self) -> None:
        self.server.seen.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 307
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def failing() -> Iterator[Failing]:
    server = Failing(("127.0.0.1", 0), _Handler)
    server.seen, server.statuses = [], []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def transit(server: Failing) -> VaultTransit:
    return VaultTransit(f"http://127.0.0.1:{server.server_port}", "the-token", "a/key", timeout_s=5)


def test_a_sealed_vault_is_asked_again(failing: Failing) -> None:
    failing.statuses = [503, 429, 200]
    failing.body = json.dumps({"data": {"ciphertext": "vault:v1:x"}}).encode()
    assert transit(failing).wrap(b"secret") == "vault:v1:x"
    assert failing.seen == ["/v1/transit/encrypt/a%2Fkey"] * 3


@pytest.mark.parametrize(
    ("statuses", "body", "reason"),
    [
        ([503] * 3, b"{}", r"does not answer \(3 attempts\): status 503"),
        ([403], b"{}", r"refuses to encrypt with the key a/key \(status 403\)"),
        ([307], b"{}", r"\(status 307\)"),
        ([200], b"[]", "has answered something else than a key"),
        ([200], b"nothing", "has answered something else than a key"),
    ],
)
def test_a_vault_that_fails_is_one_line(
    failing: Failing, statuses: list[int], body: bytes, reason: str
) -> None:
    failing.statuses, failing.body = statuses, body
    with pytest.raises(PenstockError, match=reason) as failure:
        transit(failing).wrap(b"secret")
    text = str(failure.value)
    assert "\n" not in text and "the-token" not in text and "c2VjcmV0" not in text
    assert all(path.startswith("/v1/transit/") for path in failing.seen), "no redirect is followed"


def test_a_vault_that_is_not_there_is_one_line() -> None:
    with pytest.raises(PenstockError, match=r"Vault at 127.0.0.1:1 does not answer \(3 attempts\)"):
        VaultTransit("http://127.0.0.1:1", "t", "k", timeout_s=1).wrap(b"secret")


def drip(listener: socket.socket, ended: Event) -> None:
    """Answer each connection with one byte of a header at a time, for ever."""
    with suppress(OSError):
        while not ended.is_set():
            connection, _ = listener.accept()
            Thread(target=_drip, args=(connection, ended), daemon=True).start()


def _drip(connection: socket.socket, ended: Event) -> None:
    with connection, suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not ended.wait(0.05):
            connection.sendall(b"x")


def test_a_vault_that_answers_one_byte_at_a_time_does_not_delay_a_start() -> None:
    """A timeout of a socket counts for each operation, and none of them takes long."""
    ended = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=drip, args=(listener, ended), daemon=True).start()
        port = listener.getsockname()[1]
        try:
            with pytest.raises(PenstockError, match=r"3 attempts\): no answer within 0.3 seconds"):
                VaultTransit(f"http://127.0.0.1:{port}", "t", "k", timeout_s=0.3).wrap(b"secret")
        finally:
            ended.set()


def test_the_token_is_not_sent_in_plain_text() -> None:
    with pytest.raises(InvalidConfig, match="the token would be sent in plain text"):
        VaultTransit("http://vault.example:8200", "t", "k")
    with pytest.raises(InvalidConfig, match=r"vault\.ca\.location /missing"):
        VaultTransit("https://vault.example:8200", "t", "k", authorities="/missing")


def test_a_proxy_does_not_get_the_token_in_plain_text(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{failing.server_port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PenstockError, match="does not answer"):
        VaultTransit("http://127.0.0.1:1", "t", "k", timeout_s=1).wrap(b"secret")
    assert failing.seen == []


def test_keys_are_not_sent_to_aws_in_plain_text() -> None:
    for endpoint in ("http://kms.example", "ftp://kms.example", "http://[", "kms.example"):
        with pytest.raises(InvalidConfig, match="keys would be sent in plain text"):
            AwsKms("key", endpoint=endpoint)


# -- Vault's transit engine


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    if not ALL and not vault_built():
        pytest.skip("no Vault in the lab: `make vault` builds it")
    try:
        program = vault_program()
    except LabError as missing:
        pytest.skip(f"not in the lab: {str(missing).splitlines()[0]}")
    made = Vault(tmp_path_factory.mktemp("vault"), program)
    with started(made.server):
        made.write("transit/keys/penstock", {})
        yield made


def vault_settings(vault: Vault) -> dict[str, object]:
    return {
        **config(None),
        "penstock.encryption.key.provider": "vault-transit",
        "penstock.encryption.key.id": "penstock",
        "penstock.encryption.vault.address": vault.address,
        "penstock.encryption.vault.token": vault.token,
    }


@pytest.mark.process
def test_vault_wraps_the_keys_of_a_broker(
    vault: Vault, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made, used again, rotated with the key of Vault, and refused without a right."""
    data, settings = tmp_path / "data", vault_settings(vault)
    with broker(data=data, config=settings) as running:
        fill(running)
    assert readable(data) == set()
    before = json.loads((data / KEYS).read_text())
    assert before["keys"][0]["wrapped"].startswith("vault:v1:")
    vault.write("transit/keys/penstock/rotate", {})
    with broker(data=data, config=settings) as running:
        assert read(running, "after the rotation of Vault's key") == [VALUE] * COUNT
    file = tmp_path / "broker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    assert run_here(f"--encryption-config={file}", "encryption", "rotate", str(data)) == 0
    after = json.loads((data / KEYS).read_text())
    assert [key["name"] for key in after["keys"]] != [key["name"] for key in before["keys"]]
    assert len(after["keys"]) == 1 and after["keys"][0]["wrapped"].startswith("vault:v2:")
    with broker(data=data, config=settings) as running:
        assert read(running, "rotated") == [VALUE] * COUNT
    refused = {**settings, "penstock.encryption.vault.token": "wrong"}
    with pytest.raises(PenstockError, match=r"\(status 403\)"), broker(data=data, config=refused):
        pass
    shown = capsys.readouterr()
    assert vault.token not in shown.out + shown.err


# -- AWS KMS: moto has boto3, so a program in its environment uses the provider

_KMS_PROGRAM = """
import sys
sys.path[:0] = [sys.argv[1]]
import boto3
from penstock.broker.base.key_providers import AwsKms
from penstock.model.errors import PenstockError
client = boto3.client("kms", region_name="eu-central-1", endpoint_url=sys.argv[2])
key = client.create_key()["KeyMetadata"]["KeyId"]
provider = AwsKms(key, region="eu-central-1", endpoint=sys.argv[2])
wrapped = provider.wrap(bytes(range(32)))
assert provider.unwrap(wrapped) == bytes(range(32)) and bytes(range(32)) not in wrapped.encode()
client.enable_key_rotation(KeyId=key)
assert provider.unwrap(wrapped) == bytes(range(32))
other = client.create_key()["KeyMetadata"]["KeyId"]
for bad, key_id in ((wrapped, other), ("AAAA", key), ("no base64!", key)):
    try:
        AwsKms(key_id, region="eu-central-1", endpoint=sys.argv[2]).unwrap(bad)
    except PenstockError as e:
        assert "\\n" not in str(e), e
    else:
        raise SystemExit(f"{bad} was unwrapped")
try:
    AwsKms(key, region="eu-central-1", endpoint="http://127.0.0.1:1", timeout_s=0.2).wrap(b"x")
except PenstockError as e:
    print(e)
"""


@pytest.mark.process
@pytest.mark.slow
def test_aws_kms_wraps_keys(tmp_path: Path) -> None:
    if not ALL and not moto_built():
        pytest.skip("no moto in the lab: `make vault` installs it")
    try:
        server = moto_server(tmp_path)
    except LabError as missing:
        pytest.skip(f"not in the lab: {str(missing).splitlines()[0]}")
    with started(server):
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        words = [str(moto_python()), "-c", _KMS_PROGRAM, str(ROOT / "src"), f"http://{server.bootstrap}"]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "AWS KMS refuses to encrypt with the key" in done.stdout


def test_aws_kms_needs_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(PenstockError, match=r"needs boto3: install it with `pip install '.*\[kms\]'`"):
        AwsKms("key")


def test_plain_files_have_no_provider(tmp_path: Path) -> None:
    files = with_encryption(OsFiles(), BrokerConfig({"log.dirs": str(tmp_path)}))
    assert not isinstance(files, EncryptedFiles)
