"""A broker on encrypted directories: nothing is readable without the key, and a lost key is a clear error."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
)

from penstock.broker.base.encrypted_disks import is_on_disk, paced
from penstock.broker.base.pacing import PacedFiles
from penstock.broker.base.system_ports import OsFiles
from penstock.cli.data_files import use_keys
from penstock.encryption import IN_PROGRESS, META, VERSION
from penstock.encryption.directory import (
    DirectoryNotEncrypted,
    content_paths,
    directory_version,
    file_state,
    file_states,
)
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import MissingKey
from penstock.encryption.version1 import encode_version1
from penstock.model.errors import PenstockError
from penstock.storage.memory import MemoryFiles
from penstock.testing import BrokerThread, broker
from tests.broker.encrypted_brokers import COUNT, STORED, VALUE, config, fill, read, readable
from tests.cli.running import run_here
from tests.encryption.keyring import NEW, OLD, OTHER, RING
from tests.waiting import eventually


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an encrypted broker that was killed, and started and stopped again."""
    data = tmp_path_factory.mktemp("encrypted") / "data"
    with broker(data=data, config=config(OLD)) as running:
        fill(running)
        running.kill()
        running.start()
        assert read(running, "again") == [VALUE] * COUNT
    return data


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "data"))


@pytest.fixture(autouse=True)
def no_keys() -> Iterator[None]:
    yield
    use_keys(None)


def test_nothing_is_readable_on_the_disk(filled: Path) -> None:
    names = {path.suffix for path in filled.rglob("*") if path.is_file() and path.stat().st_size}
    assert {".log", ".index", ".timeindex", ".checkpoint", ".json"} <= names
    assert readable(filled) == set()


def test_without_encryption_all_of_it_is_readable(tmp_path: Path) -> None:
    """Otherwise the test above would find nothing whatever is on the disk."""
    with broker(data=tmp_path / "data", config=config(None)) as running:
        fill(running)
    assert readable(tmp_path / "data") == set(STORED)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (None, "is encrypted with the key old: set penstock.encryption.keys"),
        (NEW, "files that are encrypted with the key old, which penstock.encryption.keys does not have"),
        (OTHER, "is encrypted with another key of the name old"),
    ],
)
def test_a_lost_key_is_a_clear_error(data: Path, keys: str | None, reason: str) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with pytest.raises(MissingKey, match=reason), broker(data=data, config=config(keys)):
        pass
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_keys_are_rotated(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new key is for new files; after `rotate` it opens all files, and the old one none."""
    both = f"{NEW}\n{OLD}"
    with broker(data=data, config=config(both)) as running:
        assert read(running, "rotated") == [VALUE] * COUNT
    keys = tmp_path / "keys"
    keys.write_text(both)
    assert run_here(f"--encryption-keys={keys}", "encryption", "rotate", str(data)) == 0
    assert run_here("encryption", "status", str(data)) == 0
    shown = capsys.readouterr().out
    assert "new" in shown and "old" not in shown
    with broker(data=data, config=config(NEW)) as running:
        assert read(running, "later") == [VALUE] * COUNT
    with pytest.raises(MissingKey), broker(data=data, config=config(OLD)):
        pass


def test_a_directory_in_plain_text_is_encrypted_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, keys = tmp_path / "data", tmp_path / "keys"
    with broker(data=data, config=config(None)) as running:
        fill(running)
    assert run_here("encryption", "new-key", str(keys), "--name", "first") == 0
    assert keys.stat().st_mode & 0o777 == 0o600
    text = keys.read_text()
    with (
        pytest.raises(DirectoryNotEncrypted, match="`penstock encryption apply`"),
        broker(data=data, config=config(text)),
    ):
        pass
    command = f"--encryption-keys={keys}"
    assert run_here(command, "encryption", "apply", str(data)) == 0
    assert readable(data) == set()
    with broker(data=data, config=config(text)) as running:
        assert read(running, "encrypted") == [VALUE] * COUNT
    capsys.readouterr()
    (segment,) = map(str, (data / "topics" / "secret-topic").rglob("*.log"))
    assert run_here("log", "verify", segment) == 2, "without the keys"
    assert "--encryption-keys" in capsys.readouterr().err
    assert run_here(command, "log", "verify", segment) == 0
    assert run_here(command, "encryption", "remove", str(data)) == 0
    with broker(data=data, config=config(None)) as running:
        assert read(running, "decrypted") == [VALUE] * COUNT


def test_a_copy_of_a_segment_is_dumped_with_a_warning(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker would not read it there: an operator who has the keys may."""
    (segment,) = (data / "topics" / "secret-topic").rglob("*.log")
    copy, keys = tmp_path / segment.name, tmp_path / "keys"
    shutil.copyfile(segment, copy)
    keys.write_text(OLD)
    assert run_here(f"--encryption-keys={keys}", "log", "verify", str(copy)) == 0
    shown = capsys.readouterr()
    assert f"{copy} is not authentic here: it is the file" in shown.err and "200" in shown.out


def test_compaction_is_paced_below_the_encryption() -> None:
    disk, memory = OsFiles(), MemoryFiles()
    encrypted = EncryptedFiles(disk, RING)
    assert is_on_disk(disk) and is_on_disk(encrypted)
    assert not is_on_disk(memory) and not is_on_disk(EncryptedFiles(memory, RING))
    assert isinstance(paced(disk, 1e6), PacedFiles)
    slow = paced(encrypted, 1e6)
    assert isinstance(slow, EncryptedFiles) and isinstance(slow.inner, PacedFiles)
    assert paced(encrypted, 1e13) is encrypted and paced(memory, 1.0) is memory


def downgrade(data: Path) -> None:
    """Have a directory as earlier releases wrote it."""
    disk = OsFiles()
    plain = EncryptedFiles(disk, RING)
    contents = {path: plain.read(path) for path in content_paths(disk, str(data))}
    for path, content in contents.items():
        disk.write_atomic(path, encode_version1(RING, secrets.token_bytes, content))


def versions(data: Path) -> set[int]:
    return {version for version, _ in file_states(OsFiles(), str(data))}


def produce(running: BrokerThread, count: int) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for _ in range(count):
        producer.produce("secret-topic", VALUE)
    assert producer.flush(60) == 0


def test_a_directory_of_version_1_is_used_and_new_files_have_the_current_one(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if its segments were larger: a start converts small files.
    monkeypatch.setattr("penstock.encryption.conversion._SMALL_BYTES", 0)
    downgrade(data)
    assert versions(data) == {1}
    with broker(data=data, config=config(OLD)) as running:
        assert read(running, "old") == [VALUE] * COUNT
        produce(running, 1)
        running.kill()
        running.start()
        produce(running, 1)
    folder = data / "topics" / "secret-topic" / "partition-0"
    segments = sorted(folder.glob("*.log"))
    assert [file_state(OsFiles(), str(path)).version for path in segments] == [1, VERSION], (
        "appends go to a new one"
    )
    assert versions(data) == {1, VERSION} and directory_version(OsFiles(), str(data)) == 1
    assert run_here("encryption", "status", str(data), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["version"] for row in shown} == {1, VERSION}
    keys = tmp_path / "keys"
    keys.write_text(OLD)
    assert run_here(f"--encryption-keys={keys}", "encryption", "rotate", str(data)) == 1
    assert "`penstock encryption apply` converts it" in capsys.readouterr().err
    assert run_here(f"--encryption-keys={keys}", "encryption", "apply", str(data)) == 0
    assert versions(data) == {VERSION}
    with broker(data=data, config=config(OLD)) as running:
        assert len(read(running, "converted")) >= COUNT


def test_a_start_converts_a_directory_with_small_files_of_version_1(data: Path) -> None:
    downgrade(data)
    with broker(data=data, config=config(OLD)) as running:
        assert read(running, "old") == [VALUE] * COUNT
        assert versions(data) == {VERSION}
    with broker(data=data, config=config(OLD)) as running:
        assert read(running, "converted") == [VALUE] * COUNT


def test_a_start_does_not_convert_a_file_that_it_cannot_read(data: Path) -> None:
    """The converted file would be empty, and nothing could be learned from the old one."""
    downgrade(data)
    (checkpoint,) = data.glob("recovery-point-offset-checkpoint")
    damaged = bytearray(checkpoint.read_bytes())
    damaged[30:100] = bytes(70)
    checkpoint.write_bytes(damaged)
    with broker(data=data, config=config(OLD)) as running:
        assert read(running, "old") == [VALUE] * COUNT
    assert directory_version(OsFiles(), str(data)) == 1


def test_a_directory_leaves_version_1_with_its_last_file(data: Path) -> None:
    """Then files of version 1 are not read any more: they could be those of other topics."""
    old = data / "topics" / "secret-topic" / "partition-0" / "00000000000000000000.log"
    downgrade(data)
    earlier = old.read_bytes()
    disk = OsFiles()
    both = EncryptedFiles(disk, RING, accepts=frozenset({1, VERSION}))
    for path in list(content_paths(disk, str(data))):
        if not path.endswith(META):
            both.write_atomic(path, both.read(path))
    assert directory_version(disk, str(data)) == 1
    with broker(data=data, config=config(OLD)) as running:
        assert read(running, "new") == [VALUE] * COUNT
    assert versions(data) == {VERSION}
    old.write_bytes(earlier)
    with broker(data=data, config=config(OLD)) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        assert "secret-topic" in admin.list_topics(timeout=60).topics
        assert EncryptedFiles(disk, RING).size(str(old)) == 0


@pytest.mark.process
def test_a_conversion_that_is_killed_is_finished_by_another_one(data: Path, tmp_path: Path) -> None:
    downgrade(data)
    keys = tmp_path / "keys"
    keys.write_text(OLD)
    command = [
        sys.executable,
        "-m",
        "penstock",
        f"--encryption-keys={keys}",
        "encryption",
        "apply",
        str(data),
    ]
    marker, kills = data / IN_PROGRESS, 0
    while versions(data) != {VERSION} and kills < 5:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        seen = marker.stat().st_mtime_ns if marker.exists() else 0
        eventually(lambda: child.poll() is not None or (marker.exists() and marker.stat().st_mtime_ns > seen))  # noqa: B023
        kills += child.poll() is None
        child.kill()
        child.wait()
        if marker.exists():
            with (
                pytest.raises(PenstockError, match="is being encrypted"),
                broker(data=data, config=config(OLD)),
            ):
                pass
    assert kills, "no conversion was interrupted"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert versions(data) == {VERSION} and not (data / IN_PROGRESS).exists()
    with broker(data=data, config=config(OLD)) as running:
        assert read(running, "converted") == [VALUE] * COUNT
