"""The kinds of broker that disasters strike: how their files are read, and where damage goes."""

from __future__ import annotations

from pathlib import Path

from disasters.damage import flip_bit
from disasters.system import SYSTEMS
from penstock.broker.base.system_ports import OsFiles
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import parse_keys


def test_files_of_encrypted_brokers_are_read_and_damaged_at_a_position_of_their_content(
    tmp_path: Path,
) -> None:
    system, path = SYSTEMS["penstock-encrypted"], tmp_path / "00000000000000000000.log"
    ring = parse_keys(system.settings["penstock.encryption.keys"])
    files = EncryptedFiles(OsFiles(), ring)
    for piece in (b"first ", b"needle", b" last"):
        files.open(str(path), create=True).append(piece)
    content = system.read(path)
    assert content == b"first needle last" and b"needle" not in path.read_bytes()
    flip_bit(path, system.position(path, content.find(b"needle")))
    assert system.read(path) == b"first " + b"\xff" * 6 + b" last"
    assert system.name == "penstock", "the same disasters, judged in the same way"


def test_files_of_other_brokers_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    for name in ("penstock", "kafka"):
        assert SYSTEMS[name].read(path) == b"content" and SYSTEMS[name].position(path, 3) == 3
        assert SYSTEMS[name].options(tmp_path) == []
