"""`penstock cluster start --secure`, and commands against such a cluster."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.cli import client_config
from penstock.cli.cluster.broker_home import homes_in
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
