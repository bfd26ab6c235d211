"""`penstock audit verify` on files and on the topic of real brokers."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.chain import Chain
from penstock.testing import BrokerThread, broker
from tests.broker.logins import JAAS, ports
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.broker.speaker import Speaker
from tests.cli.running import PENSTOCK, WAIT_S, run_here
from tests.secured import HOST
from tests.waiting import eventually

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "audit.key"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o600)
    return path


def verify(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and the output of a check."""
    capsys.readouterr()
    code = run_here("audit", "verify", *map(str, arguments))
    out, err = capsys.readouterr()
    return code, out + err


def secured(data: Path, key_file: Path, **more: str) -> dict[str, Any]:
    return {
        "data": data,
        "config": {
            "listeners": f"SASL://{HOST}:0",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.jaas.config": JAAS,
            "connection.failed.authentication.delay.ms": "0",
            "penstock.audit.destination": "file",
            "penstock.audit.aggregation.ms": "0",
            "penstock.audit.hash.key.file": str(key_file),
            **more,
        },
    }


def fail_to_log_in(running: BrokerThread, *users: str) -> None:
    for user in users:
        with Speaker(ports(running)["SASL"]) as speaker:
            assert speaker.handshake() == 0
            speaker.token(f"\0{user}\0wrong".encode())


def test_the_file_of_a_broker_over_two_starts(
    tmp_path: Path, key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for start in range(2):
        with broker(**secured(data, key_file)) as running:
            fail_to_log_in(running, *(f"user-{start}-{n}" for n in range(4)))
    path, head = data / "audit" / "audit.log", data / "audit-file.head"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(head.stat().st_mode) == 0o600
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [event["user"] for event in events if event["event"] == "authentication_failed"] == [
        f"user-{start}-{n}" for start in range(2) for n in range(4)
    ]
    code, output = verify(capsys, path, "--key-file", key_file, "--head", head)
    assert code == 0 and output.startswith("ok: 10 events in 2 chains\nlast: 1/file/")
    code, output = verify(capsys, path)
    assert code == 1 and "made with a key: give the right key" in output
    # Each change is one line on standard error, and exit code 1.
    lines = path.read_bytes().splitlines(keepends=True)
    changes = {
        "events 3 to 3 of 1/file/": lines[:2] + lines[3:],
        "was changed": [line.replace(b"user-0-1", b"user-0-9") for line in lines],
        "comes after": [*lines[:4], lines[1], *lines[4:]],
        "is known, but missing": lines[:-1],
        "and those before it are missing": lines[2:],
        "but there is only 3": lines[:3] + lines[5:],
    }
    for text, content in changes.items():
        changed = tmp_path / "changed.log"
        changed.write_bytes(b"".join(content))
        code, output = verify(capsys, changed, "--key-file", key_file, "--head", head)
        assert (code, output.count("\n")) == (1, 1)
        assert text in output


def test_an_earlier_output_is_a_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain, path, saved = Chain("1/file/a"), tmp_path / "audit.log", tmp_path / "saved.json"
    lines = [chain.seal({"event": "x", "n": n}) + b"\n" for n in range(5)]
    path.write_bytes(b"".join(lines))
    code, output = verify(capsys, path, "--json")
    assert code == 0 and json.loads(output)["events"] == 5
    saved.write_text(output)
    path.write_bytes(b"".join(lines[:4]))
    assert verify(capsys, path)[0] == 0, "nothing in the file shows its cut end"
    code, output = verify(capsys, path, "--head", saved)
    assert code == 1 and "event 5 of 1/file/a is known, but missing" in output
    code, output = verify(capsys, path, "--head", saved, "--json")
    assert code == 1 and json.loads(output)["findings"][0]["place"] == "end"


def test_files_of_a_syslog_server_have_other_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain, path = Chain("1/syslog/a"), tmp_path / "messages"
    lines = [b"Nov 18 host penstock[1]: " + chain.seal({"event": "x", "n": n}) + b"\n" for n in range(5)]
    path.write_bytes(b"".join([b"Nov 18 host kernel: x\n", *lines, lines[-1]]))
    assert verify(capsys, path, "--syslog")[0] == 0
    path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    code, output = verify(capsys, path, "--syslog")
    assert code == 1 and "events 3 to 3" in output


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(capsys)[0] == 2
    assert verify(capsys, tmp_path / "x", "--topic")[0] == 2
    code, output = verify(capsys, tmp_path / "missing")
    assert code == 1 and "cannot read" in output
    empty = tmp_path / "empty"
    empty.touch()
    assert verify(capsys, empty) == (1, "penstock: there is no audit event\n")
    empty.write_text("{}")
    assert verify(capsys, empty, "--head", empty)[0] == 2


def test_the_topic_of_a_broker(tmp_path: Path, key_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"penstock.audit.destination": "topic", "penstock.audit.hash.key.file": str(key_file)}
    for start in range(2):
        with broker(data=tmp_path / "data", config=config) as running, RawClient(running.bootstrap) as client:
            for n in range(3):
                create_topic(client, f"t-{start}-{n}")
            queue = running.broker.stages.listening.audit_queue
            assert queue is not None
            eventually(lambda: not len(queue))  # noqa: B023
            where = ("--topic", "--bootstrap", running.bootstrap)
            code, output = verify(capsys, *where, "--key-file", key_file)
            assert code == 0 and output.startswith(f"ok: {3 + 4 * start} events in {start + 1} chain")
            code, output = verify(capsys, *where)
            assert code == 1 and "__audit-0@0: begins a chain that was made with a key" in output


@pytest.mark.process
def test_a_killed_broker_continues_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A crash is no removal: what was delivered is in the file, and the next start continues it."""
    data = tmp_path / "data"
    path = data / "audit" / "audit.log"
    options = ["--port", "0", "--data", str(data), "--set", "penstock.audit.destination=file"]
    for nth, number in enumerate((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)):
        with subprocess.Popen(
            [*PENSTOCK, "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1]
            with RawClient(address) as client:
                create_topic(client, f"t{nth}")
            eventually(lambda: f'"t{nth}"' in path.read_text())  # noqa: B023
            process.send_signal(number)
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL)
    code, output = verify(capsys, path, "--head", data / "audit-file.head")
    assert (code, output.splitlines()[0]) == (0, "ok: 4 events in 3 chains")
    # The same after an attacker has removed what happened between the crashes.
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"".join(lines[2:]))
    assert verify(capsys, path)[0] == 1
