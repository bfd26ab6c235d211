"""The Java client, where a machine has Java and the lab has Apache Kafka's jars (`make bench` gets them)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.model.config.units import Unit, plain
from tests.interop.adapters import ADAPTERS, ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.jars import JARS
from tests.interop.message import CODECS, Headers, Message

PROGRAM = Path(__file__).parent / "java" / "RoundTrip.java"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed"),
    pytest.mark.skipif(not list(JARS.glob("kafka-clients-*.jar")), reason="the lab has no Apache Kafka"),
]


def java_line(topic: str, partition: int, offset: int, message: Message) -> str:
    """A message as the program prints it."""
    headers = ",".join(f"{name}={_text(value)}" for name, value in message.headers)
    return "\t".join([topic, str(partition), str(offset), _text(message.key), _text(message.value), headers])


def _text(data: bytes | None) -> str:
    return "null" if data is None else f"'{data.decode()}'"


def java_messages(codec: str) -> list[Message]:
    """What the program sends in one codec."""
    headers: Headers = (("codec", codec.encode()), ("codec", b""), ("null", None))
    values = [f"{codec} {i} {'x' * 200}".encode() for i in range(2)]
    return [
        Message(None, values[0], headers),
        Message(b"key", values[1], headers),
        Message(b"key", None, headers),
    ]


def test_java_reads_and_writes(bootstrap: str, new_topic: NewTopicNamed) -> None:
    theirs = new_topic(len(CODECS))
    sent = [Message("ключ".encode(), b"value " * 30, (("h", b"1"), ("h", None))), Message(None, None)]
    expected = []
    for partition, codec in enumerate(CODECS):
        ConfluentKafka().produce(bootstrap, theirs, sent, codec, partition)
        expected += [java_line(theirs, partition, i, m) for i, m in enumerate(sent)]
    ours = f"{theirs}-java"
    large = new_topic(max_message_bytes=plain("1MB", Unit.MESSAGE_SIZE))
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{JARS}/*", str(PROGRAM), bootstrap, theirs, ours, large],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for partition, codec in enumerate(CODECS):
        messages = java_messages(codec)
        expected += [java_line(ours, partition, i, m) for i, m in enumerate(messages)]
        for reader in ADAPTERS[:3]:
            read = reader.consume(bootstrap, ours, len(messages), partition=partition)
            assert [m.without_timestamp() for m in read] == messages
    assert sorted(done.stdout.splitlines()) == sorted(expected)
    read = ConfluentKafka().consume(bootstrap, large, len(CODECS))
    assert [len(m.value or b"") for m in read] == [1 << 20] * len(CODECS)
