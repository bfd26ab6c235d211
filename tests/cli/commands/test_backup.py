"""`penstock backup` and `penstock restore`, from a broker to a folder and back."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.testing import broker
from tests.backup.clusters import commit_offsets, committed, consume, create, produce
from tests.cli.running import run_here

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")


@pytest.mark.slow
def test_from_a_broker_to_a_folder_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, data = str(tmp_path / "archive"), tmp_path / "data"
    with broker() as running:
        create(running.bootstrap, "orders", retention_ms="-1")
        produce(running.bootstrap, "orders", [b"1", b"2"])
        commit_offsets(running.bootstrap, "billing", "orders", 1)
        assert run_here("backup", "run", "--to", archive, "--bootstrap", running.bootstrap) == 0
        source = consume(running.bootstrap, "orders")
    assert ": 1 topics, 1 partitions, 1 groups, " in capsys.readouterr().out
    assert run_here("backup", "list", archive, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["topics"], row["records"], row["groups"]) == (1, 2, 1)
    assert run_here("backup", "verify", f"{archive}@{row['time']}", "--json") == 0
    assert [each["ok"] for each in json.loads(capsys.readouterr().out)] == ["yes"]
    assert run_here("backup", "prune", archive, "--keep", "30d", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"cuts": 0, "objects": 0, "waiting": 0}
    assert run_here("restore", f"{archive}@{row['time']}", "--data", str(data)) == 0
    assert "restored 1 topics, 1 partitions" in capsys.readouterr().out
    with broker(data=data) as running:
        assert consume(running.bootstrap, "orders") == source
        assert committed(running.bootstrap, "billing", "orders") == 1
    (segment,) = (tmp_path / "archive").rglob("*.segment")
    segment.unlink()
    assert run_here("backup", "verify", archive) == 1
    shown = capsys.readouterr()
    assert "1 of 1 partitions cannot be restored from this cut" in shown.err and "is missing" in shown.out
    assert run_here("restore", archive, "--data", str(tmp_path / "other")) == 1
    assert "the cut cannot be restored" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "nowhere"), "is no folder"),
        (("list", "ftp://x"), "an archive cannot be at ftp://"),
        (("prune", ".", "--keep", "soon"), "--keep 'soon' is not a duration like 60s, 24h or 30d"),
        (("prune", ".", "--keep", "-1"), "is not a duration"),
        (("verify", ".@2026-99-99"), "is neither milliseconds nor a time"),
        (("verify", "--tiered", ".@2026-11-17"), "name the archive without a time"),
        (("run", "--to", "x", "--metrics", "9100"), "give --every, too"),
        (("run", "--to", "x", "--every", "1s", "--metrics", "a:b"), "--metrics 'a:b' is neither a port"),
        (("list", "."), "there is no archive: archive.json is missing"),
        (("run", "--to", "archive", "--bootstrap", "127.0.0.1:1"), "no broker answers Metadata"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_here("backup", *arguments) in (1, 2)
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name either --data, a new data directory, or --bootstrap, a running cluster"),
        (("--data", "x", "--bootstrap", "127.0.0.1:1"), "name either --data"),
        (("--data", "x", "--rights"), "are for a running cluster (--bootstrap)"),
    ],
)
def test_a_restore_has_one_destination(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here("restore", "archive", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_secret_in_an_address_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("backup", "list", "s3://id:sec-ret@bucket/x") == 1
    shown = capsys.readouterr()
    assert "credentials in the environment" in shown.err and "sec-ret" not in shown.err + shown.out


def _new_key(folder: Path, name: str) -> str:
    """A file with one new key."""
    file = folder / f"{name}.keys"
    assert run_here("encryption", "new-key", str(file), "--name", name) == 0
    return str(file)


@pytest.mark.slow
def test_an_encrypted_backup_from_a_broker_to_a_folder_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, data = tmp_path / "archive", tmp_path / "data"
    keys, other = _new_key(tmp_path, "k1"), _new_key(tmp_path, "k2")
    with broker() as running:
        create(running.bootstrap, "orders", retention_ms="-1")
        produce(running.bootstrap, "orders", [b"a secret value"] * 10)
        arguments = ("backup", "run", "--to", str(archive), "--bootstrap", running.bootstrap)
        assert run_here("--encryption-keys", keys, *arguments) == 0
        assert run_here("--encryption-keys", keys, *arguments) == 0
        source = consume(running.bootstrap, "orders")
        assert run_here(*arguments) == 1
        assert "the archive is encrypted" in capsys.readouterr().err
    assert not any(b"secret" in each.read_bytes() for each in archive.rglob("*") if each.is_file())
    assert run_here("--encryption-keys", other, "backup", "verify", str(archive)) == 1
    assert "encrypted with the key k1" in capsys.readouterr().err
    assert run_here("--encryption-keys", keys, "backup", "verify", str(archive)) == 0
    assert run_here("--encryption-keys", keys, "backup", "prune", str(archive), "--keep", "30d") == 0
    assert run_here("--encryption-keys", keys, "restore", str(archive), "--data", str(data)) == 0
    with broker(data=data) as running:
        assert consume(running.bootstrap, "orders") == source
    secret = Path(keys).read_text(encoding="utf-8").strip()
    with broker(mount=str(archive), config={"penstock.encryption.keys": secret}) as running:
        assert consume(running.bootstrap, "orders") == source
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err


def test_credentials_of_a_store_are_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The store refuses the connection; neither the environment nor the file of options reach the output."""
    monkeypatch.setattr("penstock.objectstore.object_store._RETRY_TIMEOUT", timedelta(seconds=0))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-in-the-environment")
    options = tmp_path / "options"
    options.write_text("aws_secret_access_key=a-secret-of-the-file\naws_endpoint=http://127.0.0.1:1\n")
    options.chmod(0o600)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert run_here("backup", "list", "s3://bucket/backups", "--store-config", str(options)) == 1
    shown = capfd.readouterr()
    assert "check the address, the credentials and the network" in shown.err
    words = set(re.findall(r"[\w-]+", shown.err + shown.out))
    assert not {"AKIA-in-the-environment", "a-secret-of-the-file"} & words
    for refused in ("s3://AKIA:secret@bucket/x", "s3://bucket/x?aws_secret_access_key=hidden"):
        assert run_here("backup", "list", refused) in (1, 2)
        error = capfd.readouterr().err
        assert "secret@" not in error and "hidden" not in error
