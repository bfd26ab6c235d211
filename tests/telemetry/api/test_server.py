"""`penstock telemetry serve` as users run it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.running import run_here
from tests.secured import pki

PENSTOCK = [sys.executable, "-m", "penstock"]
WAIT_S = 90


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the one line of a command that fails."""
    code = run_here(*arguments)
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    return code, errors


@pytest.mark.process
def test_a_server_answers_until_sigint_ends_it(tables: Path) -> None:
    command = [*PENSTOCK, "telemetry", "serve", "--tables", str(tables), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready http://127.0.0.1:"), line
            with urlopen(line.split()[1], timeout=WAIT_S) as answer:
                assert len(json.load(answer)["items"]) == 4
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.process
def test_tls_and_a_token_until_sigterm(tables: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    command = [*PENSTOCK, "telemetry", "serve", "--tables", str(tables), "--port", "0"]
    command += ["--certificate", pki()["server"], "--token-file", str(secret)]
    context = pki().client(None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready https://127.0.0.1:"), line
            url = line.split()[1]
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
                with pytest.raises(HTTPError, match="401") as refused:
                    urlopen(Request(url, headers=headers), timeout=WAIT_S, context=context)
                refused.value.close()
            allowed = Request(url, headers={"Authorization": "Bearer s3cret"})
            with urlopen(allowed, timeout=WAIT_S, context=context) as answer:
                assert len(json.load(answer)["items"]) == 4
            with urlopen(url.replace("api/v1/gpus", "healthz"), timeout=WAIT_S, context=context) as answer:
                assert answer.status == 200
            with pytest.raises(OSError):
                urlopen(url.replace("https", "http"), timeout=WAIT_S)
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--host", "0.0.0.0"], 2, "0.0.0.0 would serve any machine that reaches it: set --certificate"),
        (["--token-file", "/nowhere"], 1, "cannot read --token-file /nowhere"),
        (["--certificate", "/nowhere.pem", "--port", "0"], 1, "--certificate /nowhere.pem"),
    ],
)
def test_incomplete_security(
    tables: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, reason: str
) -> None:
    found = run_here("telemetry", "serve", "--tables", str(tables), *arguments)
    assert (found, reason in capsys.readouterr().err) == (code, True)


def test_a_taken_port(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, line = failure(capsys, "telemetry", "serve", "--tables", str(tables), "--port", port)
    assert code == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in line
    assert "--port" in line


@pytest.mark.parametrize("command", ["serve", "report"])
def test_folders_that_are_no_tables(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    code, line = failure(capsys, "telemetry", command, "--tables", str(file))
    assert code == 2
    assert "is a file; name the folder" in line
    code, line = failure(capsys, "telemetry", command, "--tables", "gopher://nowhere/x")
    assert code == 1
    assert "gopher" in line


@pytest.mark.process
def test_brokers_do_without_all_of_it() -> None:
    """What a command does not use it does not load: a broker starts in a fraction of the time."""
    script = (
        "import sys, penstock.cli, penstock.cli.telemetry.serve;"
        "print([name for name in ('fastapi', 'uvicorn', 'pydantic', 'matplotlib', 'deltalake', 'pyarrow',"
        " 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S)
    assert done.stdout == "[]\n", done.stderr
