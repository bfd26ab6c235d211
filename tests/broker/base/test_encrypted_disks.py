"""A broker on encrypted directories: nothing is readable without the key, and a lost key is a clear error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.broker.base.encrypted_disks import is_on_disk, paced
from penstock.broker.base.pacing import PacedFiles
from penstock.broker.base.system_ports import OsFiles
from penstock.cli.data_files import use_keys
from penstock.encryption.directory import DirectoryNotEncrypted
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import MissingKey
from penstock.storage.memory import MemoryFiles
from penstock.testing import BrokerThread, broker
from tests.cli.running import run_here
from tests.encryption.keyring import NEW, OLD, OTHER, RING

VALUE = b"the value of a secret record"
#: texts that a broker stores in records, in the metadata log and snapshots, and in its own files
STORED = (VALUE, b"secret-user", b"secret-group", b"directory.id", b"secret-topic")
COUNT = 200


def config(keys: str | None) -> dict[str, object]:
    made: dict[str, object] = {
        "metadata.log.max.record.bytes.between.snapshots": "200",
        "log.index.interval.bytes": "100",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return made if keys is None else {**made, "penstock.encryption.keys": keys}


def fill(running: BrokerThread) -> None:
    """Records, a topic, a user and committed offsets."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    topic = NewTopic("secret-topic", 1, config={"index.interval.bytes": "100"})
    admin.create_topics([topic])["secret-topic"].result(60)
    user = UserScramCredentialUpsertion(
        "secret-user", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password"
    )
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 10})
    for _ in range(COUNT):
        producer.produce("secret-topic", VALUE)
    assert producer.flush(60) == 0
    assert read(running, "secret-group") == [VALUE] * COUNT


def read(running: BrokerThread, group: str) -> list[bytes]:
    """All records, as a member of a group that commits."""
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["secret-topic"])
    found: list[bytes] = []
    while len(found) < COUNT:
        found += [value for m in consumer.consume(COUNT, 30) if (value := m.value()) is not None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def readable(directory: Path) -> set[bytes]:
    """The texts that are in a file of the directory in plain text."""
    contents = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    return {text for text in STORED for content in contents if text in content}


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


def test_compaction_is_paced_below_the_encryption() -> None:
    disk, memory = OsFiles(), MemoryFiles()
    encrypted = EncryptedFiles(disk, RING)
    assert is_on_disk(disk) and is_on_disk(encrypted)
    assert not is_on_disk(memory) and not is_on_disk(EncryptedFiles(memory, RING))
    assert isinstance(paced(disk, 1e6), PacedFiles)
    slow = paced(encrypted, 1e6)
    assert isinstance(slow, EncryptedFiles) and isinstance(slow.inner, PacedFiles)
    assert paced(encrypted, 1e13) is encrypted and paced(memory, 1.0) is memory
