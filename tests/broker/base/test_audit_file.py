"""The audit file: mode, rotation, failures in the middle, and what its chain shows."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.chain import Chain, Head
from penstock.audit.verification import Verifier
from penstock.broker.base import audit_file
from penstock.broker.base.audit_file import AuditFile, last_event
from penstock.broker.base.audit_sink import SinkThread
from penstock.cli.audit_reading import file_entries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "audit.log"


def verified(path: Path, **options: Any) -> Verifier:
    verifier = Verifier(**options)
    for entry in file_entries([path], b"", syslog=False):
        verifier.take(entry)
    verifier.end()
    return verifier


def write(path: Path, count: int, name: str = "1/file/a", bytes_max: int = 2000, files_max: int = 3) -> None:
    delivery = AuditFile(str(path), bytes_max, files_max)
    sink = SinkThread("file", 1, delivery, lambda previous: Chain(name, b"", previous))
    sink.start()
    for n in range(count):
        assert sink.put({"event": "x", "n": n, "time": 1})
    assert sink.stop(30.0)


class Direct:
    """Delivers events one by one, in the thread of the test."""

    def __init__(self, delivery: AuditFile, previous: Head | None = None) -> None:
        self.delivery = delivery
        self.chain = Chain("1/file/a", b"", delivery.open() or previous)

    def put(self, event: Mapping[str, Any]) -> None:
        events = [*self.delivery.prepare(), event]
        self.delivery.deliver([(each, self.chain.seal(each)) for each in events])


def test_only_the_owner_can_read_the_files(path: Path) -> None:
    path.parent.mkdir()
    path.touch(mode=0o644)
    direct = Direct(AuditFile(str(path), 300, 2))
    for _ in range(3):
        direct.put({"event": "x"})
    direct.delivery.close()
    files = list(path.parent.iterdir())
    assert len(files) > 1
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_files_are_rotated_and_deleted_and_the_chain_reports_it(path: Path) -> None:
    direct = Direct(AuditFile(str(path), 1000, 3))
    for n in range(40):
        direct.put({"event": "x", "n": n})
    direct.delivery.close()
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "audit.log",
        *(f"audit.log.{n}" for n in (1, 2, 3)),
    ]
    verifier = verified(path)
    assert not verifier.findings
    assert verifier.events < 40, "some were deleted"


@pytest.mark.parametrize("removed", ["audit.log.1", "audit.log.2", "audit.log.3"])
def test_a_removed_file_is_found(path: Path, removed: str) -> None:
    direct = Direct(AuditFile(str(path), 1000, 3))
    for n in range(40):
        direct.put({"event": "x", "n": n})
    direct.delivery.close()
    (path.parent / removed).unlink()
    assert verified(path).findings


def test_a_start_continues_the_file(path: Path) -> None:
    for name in "abc":
        write(path, 5, f"1/file/{name}", bytes_max=1 << 20)
    verifier = verified(path)
    assert (verifier.findings, verifier.events, len(verifier.heads)) == ([], 18, 3)


def test_an_event_of_which_only_a_part_was_written_is_written_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = Direct(AuditFile(str(path), 1 << 20, 3))
    direct.put({"event": "first"})
    event = {"event": "second"}
    sealed = [(event, direct.chain.seal(event))]

    def tear(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full, pytest.raises(OSError, match="No space"):
        full.setattr(audit_file, "write_all", tear)
        direct.delivery.deliver(sealed)
    direct.delivery.deliver(sealed)
    direct.delivery.close()
    verifier = verified(path)
    assert (verifier.findings, verifier.events) == ([], 2)


def test_a_torn_end_after_a_power_failure_is_kept_and_reported(path: Path) -> None:
    write(path, 3)
    with path.open("ab") as file:
        file.write(b'{"event":"torn')
    write(path, 2, "1/file/b")
    (finding,) = verified(path).findings
    assert finding.text == "is not an audit event: changed, or cut off"
    assert b'{"event":"torn\n' in path.read_bytes()


def test_two_brokers_do_not_write_to_one_file(path: Path) -> None:
    first = AuditFile(str(path), 1 << 20, 3)
    first.open()
    with pytest.raises(BlockingIOError):
        AuditFile(str(path), 1 << 20, 3).open()
    first.close()
    AuditFile(str(path), 1 << 20, 3).open()


def test_no_link_is_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    (tmp_path / "secret").write_text("x")
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        AuditFile(str(path), 1 << 20, 3).open()


def test_the_last_event_of_a_file(path: Path) -> None:
    assert last_event(str(path)) is None
    write(path, 300, bytes_max=1 << 20)
    last = json.loads(path.read_bytes().splitlines()[-1])
    assert last_event(str(path)) == Head(last["chain"], last["seq"], last["hash"])
