"""Attackers who can write to an encrypted disk, and have no key: nothing that they make is served.

Each of these attacks worked against version 1 of the format.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.encryption.frames import FIRST_BLOCK, FRAME_HEAD
from penstock.records.checksum import crc32c
from penstock.testing import BrokerThread, broker
from tests.encryption.keyring import OLD

SECRET = b"a secret of the first topic"
PUBLIC = b"a public record of the second topic"
VALUE_SIZE = 40
CRC_AT = 17


def config() -> dict[str, object]:
    return {"penstock.encryption.keys": OLD, "offsets.topic.num.partitions": "1"}


def fill(running: BrokerThread) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for future in admin.create_topics([NewTopic("secret", 1), NewTopic("public", 1)]).values():
        future.result(60)
    for topic, value in (("secret", SECRET), ("public", PUBLIC)):
        # One batch, so that the two logs have the same size.
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 200, "check.crcs": True})
        for _ in range(5):
            producer.produce(topic, value.ljust(VALUE_SIZE))
        assert producer.flush(60) == 0


def served(running: BrokerThread, topic: str) -> tuple[set[bytes], set[int]]:
    """The values that a consumer gets, and the codes of the errors; it does not check CRCs by itself."""
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g", "check.crcs": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: set[bytes] = set()
    errors: set[int] = set()
    try:
        for _ in range(40):
            for message in consumer.consume(100, 0.1):
                error, value = message.error(), message.value()
                if error is not None:
                    errors.add(error.code())
                elif value is not None:
                    values.add(value.rstrip())
            if values or errors:
                break
    finally:
        consumer.close()
    return values, errors


def segment(data: Path, topic: str) -> Path:
    return data / "topics" / topic / "partition-0" / "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a stopped broker."""
    with broker(data=tmp_path / "data", config=config()) as running:
        fill(running)
        assert served(running, "secret") == ({SECRET}, set())
        assert served(running, "public") == ({PUBLIC}, set())
    return tmp_path / "data"


def test_a_segment_is_not_served_as_that_of_another_topic(data: Path) -> None:
    """A user who may read one topic would read all of them."""
    shutil.copyfile(segment(data, "secret"), segment(data, "public"))
    with broker(data=data, config=config()) as running:
        values, _ = served(running, "public")
        assert SECRET not in values
        assert served(running, "secret") == ({SECRET}, set())


@pytest.mark.process
def test_a_segment_of_another_topic_is_not_served_by_a_running_broker(data: Path) -> None:
    with broker(data=data, config=config()) as running:
        shutil.copyfile(segment(data, "secret"), segment(data, "public"))
        values, errors = served(running, "public")
        # The broker may find the damage before the consumer does: the log then ends before it.
        assert values == set() and errors <= {KafkaError.INVALID_MSG}
        assert served(running, "secret") == ({SECRET}, set())


def test_a_whole_folder_is_not_served_as_that_of_another_topic(data: Path) -> None:
    """With its `partition.metadata`, and with the `topic.metadata` above it."""
    shutil.rmtree(segment(data, "public").parent.parent)
    shutil.copytree(segment(data, "secret").parent.parent, segment(data, "public").parent.parent)
    with broker(data=data, config=config()) as running:
        assert SECRET not in served(running, "public")[0]
        assert served(running, "secret")[0] == {SECRET}


def test_a_folder_without_an_identity_does_not_take_another_one(data: Path) -> None:
    folder = segment(data, "public").parent
    (folder / "partition.metadata").unlink()
    shutil.copyfile(
        segment(data, "secret").parent.parent / "topic.metadata", folder.parent / "topic.metadata"
    )
    shutil.copyfile(segment(data, "secret"), segment(data, "public"))
    with broker(data=data, config=config()) as running:
        assert SECRET not in served(running, "public")[0]


def test_a_folder_that_has_lost_both_identities_is_read(data: Path) -> None:
    """As in plain text. The id of the topic is that of the cluster's metadata."""
    folder = segment(data, "secret").parent
    (folder / "partition.metadata").unlink()
    (folder.parent / "topic.metadata").unlink()
    with broker(data=data, config=config()) as running:
        assert served(running, "secret")[0] == {SECRET}
    other = segment(data, "public").parent
    for path in (other / "partition.metadata", other.parent / "topic.metadata"):
        path.unlink()
    shutil.copyfile(segment(data, "secret"), segment(data, "public"))
    with broker(data=data, config=config()) as running:
        assert SECRET not in served(running, "public")[0]


def test_a_changed_value_with_the_right_checksum_is_not_served(data: Path) -> None:
    """CRC-32C is linear: a change of the checksum follows from the change of the value, without the key."""
    path = segment(data, "public")
    stored = bytearray(path.read_bytes())
    content = FIRST_BLOCK + FRAME_HEAD
    size = len(stored) - content - 16
    # The attacker knows what was produced, and changes the first letter of all values at a guessed position.
    changed = bytearray(size)
    changed[75] ^= 0x20
    covered = bytes(changed[CRC_AT + 4 :])
    difference = crc32c(covered) ^ crc32c(bytes(len(covered)))
    changed[CRC_AT : CRC_AT + 4] = difference.to_bytes(4, "big")
    for at, bit in enumerate(changed):
        stored[content + at] ^= bit
    path.write_bytes(stored)
    with broker(data=data, config=config()) as running:
        assert served(running, "public")[0] == set()
        assert served(running, "secret") == ({SECRET}, set())


def test_an_index_of_another_topic_is_built_again(data: Path) -> None:
    for suffix in (".index", ".timeindex"):
        shutil.copyfile(
            segment(data, "secret").with_suffix(suffix), segment(data, "public").with_suffix(suffix)
        )
    with broker(data=data, config=config()) as running:
        assert served(running, "public") == ({PUBLIC}, set())


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_of_another_directory_is_not_used(data: Path, tmp_path: Path, name: str) -> None:
    with broker(data=tmp_path / "other", config=config()) as running:
        fill(running)
    shutil.copyfile(tmp_path / "other" / name, data / name)
    with broker(data=data, config=config()) as running:
        assert served(running, "public") == ({PUBLIC}, set())


def test_plain_text_is_not_served(data: Path, tmp_path: Path) -> None:
    with broker(data=tmp_path / "plain", config={"offsets.topic.num.partitions": "1"}) as running:
        fill(running)
    shutil.copyfile(segment(tmp_path / "plain", "secret"), segment(data, "public"))
    with broker(data=data, config=config()) as running:
        assert SECRET not in served(running, "public")[0]
