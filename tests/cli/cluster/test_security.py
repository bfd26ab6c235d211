"""`penstock cluster start --secure`, and commands against such a cluster."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from penstock.cli import client_config
from penstock.cli.cluster.broker_home import BrokerHome, homes_in
from penstock.cli.cluster.plan import ClusterPlan, check_same, make_homes
from penstock.cli.cluster.security import ClusterSecurity
from penstock.cli.failure import Failure
from tests.cli.running import run, run_here

pytest.importorskip("cryptography")


def test_secrets_are_in_private_files_only(tmp_path: Path) -> None:
    make_homes(tmp_path, ClusterPlan(brokers=2, port=0, secure=True))
    security = ClusterSecurity(tmp_path)
    password = security.client_file.read_text().split('password="')[1].split('"')[0]
    for path in tmp_path.rglob("*"):
        if path.is_file() and (password in path.read_text() or "PRIVATE KEY" in path.read_text()):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(security.directory.stat().st_mode) == 0o700
    client_config.use(None)


def test_a_cluster_is_not_secured_by_starting_it_again(tmp_path: Path) -> None:
    make_homes(tmp_path, ClusterPlan(brokers=1, port=0))
    with pytest.raises(Failure, match=r"docs/tls\.md"):
        check_same(tmp_path, homes_in(tmp_path), ClusterPlan(secure=True))


def check_monitoring(data: Path) -> None:
    """Metrics and health need the token, over TLS; liveness and readiness name nothing."""
    security = ClusterSecurity(data)
    port = monitoring_port(homes_in(data)[0])
    context = ssl.create_default_context(cafile=str(security.authority_file))
    token = security.metrics_file.read_text().strip()
    assert ask(port, "/metrics", context, token)[0] == 200
    assert ask(port, "/health", context, token)[0] == 200
    for path in ("/metrics", "/metrics/kafka", "/health"):
        assert ask(port, path, context)[0] == 401
        assert ask(port, path, context, "wrong")[0] == 401
    status, readiness = ask(port, "/readyz", context)
    # The disk may be low.
    assert (status, readiness.splitlines()[0]) == (200, "ready")
    with pytest.raises(OSError):
        urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60)


def monitoring_port(home: BrokerHome) -> int:
    (line,) = [each for each in home.log_file.read_text().splitlines() if "monitoring_started" in each]
    assert "https://127.0.0.1:" in line
    return int(line.split("https://127.0.0.1:")[1].split()[0].strip('"},'))


def ask(port: int, path: str, context: ssl.SSLContext, token: str | None = None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        request = Request(f"https://127.0.0.1:{port}{path}", headers=headers)
        with urlopen(request, timeout=60, context=context) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.process
def test_a_secured_cluster_from_start_to_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(tmp_path / "c")
    try:
        started = run("cluster", "start", "--secure", "--brokers", "2", "--port", "0", "--data", data)
        assert started.returncode == 0, started.stderr
        address = started.stdout.split()[1].split(",")[0]
        config = ["--command-config", str(ClusterSecurity(Path(data)).client_file)]
        assert " ".join(config) in started.stdout
        made = run(*config, "topic", "create", "t", "--replication-factor", "2", bootstrap=address)
        assert made.returncode == 0, made.stderr
        check_monitoring(Path(data))
        assert run_here("cluster", "status", "--data", data) == 0
        assert "up" in capsys.readouterr().out
        before = [ClusterSecurity.keystore_of(home).read_text() for home in homes_in(Path(data))]
        assert run_here("cert", "renew", "--data", data) == 0
        assert before != [ClusterSecurity.keystore_of(home).read_text() for home in homes_in(Path(data))]
        client_config.use(None)
        assert run_here("topic", "list", "--timeout", "0.5", "--bootstrap", address) == 1
    finally:
        client_config.use(None)
        assert run_here("cluster", "stop", "--data", data) == 0
        client_config.use(None)
