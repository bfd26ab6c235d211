"""`penstock container`: the broker of a pod as a process, with its probe."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import PENSTOCK, WAIT_S, run

pytestmark = pytest.mark.process

CONFIG = """\
listeners=CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0
listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=INTERNAL
penstock.metrics.listener=127.0.0.1:0
log.dirs={data}
"""


def test_the_broker_of_a_pod(tmp_path: Path) -> None:
    """SIGTERM is a controlled shutdown; a zone that cannot be read is that of the last start."""
    config = tmp_path / "broker.properties"
    config.write_text(CONFIG.format(data=tmp_path / "volume/data"))
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/kubernetes-zone").write_text("eu-1a\n")
    words = ["--config", str(config), "--pod", "queue-0", "--domain", "brokers", "--voters", "1"]
    process = subprocess.Popen(
        [*PENSTOCK, "container", "up", *words, "--rack-of-node", "node-1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "", "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"},
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert re.fullmatch(r"ready \S+:[0-9]+\n", ready), process.communicate()[1]
        address = ready.split()[1]
        status = run("cluster", "status", "--json", bootstrap=address)
        assert '"broker": 0' in status.stdout
        assert '"rack": "eu-1a"' in status.stdout
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        port = re.search(r"event=monitoring_started address=\S*:([0-9]+)", log)
        assert "event=stopped" in log
        assert port is not None
        probed = run("container", "probe", "--url", f"http://127.0.0.1:{port[1]}/healthz")
        assert (probed.returncode, "does not answer" in probed.stderr) == (1, True)
    finally:
        process.kill()
        process.wait()


def test_hooks_outside_of_kubernetes_fail_with_one_line() -> None:
    words = ["--namespace", "prod", "--set-name", "queue", "--voters", "3"]
    done = run("container", "unregister", *words)
    assert done.returncode == 1
    assert "Kubernetes' API" in done.stderr
    done = run("container", "pre-stop", "--pod", "queue-0", *words)
    assert done.returncode == 1
    assert "Kubernetes' API" in done.stdout
    assert "queue-0 stops: it will be started again" in done.stdout
