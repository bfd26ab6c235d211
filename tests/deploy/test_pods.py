"""The brokers of the chart, with the files, commands, probes and hooks that it gives them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.helm import helm_built

pytestmark = [pytest.mark.process, pytest.mark.slow]
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.timeout(900)
def test_a_release_is_rolled_scaled_up_and_down_without_loss(tmp_path: Path) -> None:
    helm = helm_built()
    if helm is None:
        pytest.skip("no helm: `make test-tools` builds it, if there is Go")
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("pods need root, unshare and ip, for networks of their own")
    words = ["unshare", *NAMESPACES, sys.executable, "-m", "tests.deploy.pods", str(tmp_path), str(helm)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "penstock-0 stops: it will be started again" in done.stdout
    assert "penstock-4 stops: the set has become smaller" in done.stdout
    assert done.stdout.splitlines()[-1] == "counted 2500"
