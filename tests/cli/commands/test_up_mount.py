"""`penstock up --mount` as a process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from penstock.testing import broker
from tests.backup.clusters import create, produce, take
from tests.cli.running import run, running_broker

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_a_mounted_backup_as_a_process(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with broker() as running:
        create(running.bootstrap, "orders", retention_ms="-1")
        produce(running.bootstrap, "orders", [b"first", b"second"])
        _, cut = take(running.bootstrap, archive)
    files = sorted(archive.rglob("*"))
    with running_broker("--mount", f"{archive}@{cut.time_ms}") as (process, address):
        read = run("consume", "orders", "--from-beginning", "--exit-at-end", bootstrap=address)
        assert read.stdout.splitlines() == ["first", "second"]
        written = run("produce", "orders", input="third\n", bootstrap=address)
        assert written.returncode == 1
        assert "policy" in written.stderr.lower()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert sorted(archive.rglob("*")) == files


def test_a_backup_that_cannot_be_mounted_is_refused_in_one_line(tmp_path: Path) -> None:
    for arguments, said in (
        (["--mount", str(tmp_path / "none")], "there is no archive"),
        (["--mount", str(tmp_path)], "archive.json is missing"),
        (["--mount", f"{tmp_path}@yesterday"], "there is no archive"),
        (["--mount", f"{tmp_path}@2026-77-01"], "the time after @"),
        (["--mount", "s3://user:secret@bucket/x"], "credentials"),
    ):
        refused = run("up", "--port", "0", *arguments)
        assert refused.returncode in (1, 2) and said in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1 and "secret" not in refused.stderr
