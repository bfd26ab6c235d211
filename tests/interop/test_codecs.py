"""Every client reads what every other client wrote, in every codec, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.adapters import ADAPTERS, Adapter
from tests.interop.conftest import NewTopicNamed
from tests.interop.kcat import JSON, needs_kcat
from tests.interop.message import CODECS, Headers, Message

DUPLICATES: Headers = (("a", b"1"), ("b", b"x"), ("a", b"2"), ("a", b"1"))
EMPTIES: Headers = (("", b"no name"), ("empty", b""))
NULLS: Headers = (("null", None), ("empty", b""), ("ünï", "→ cödé".encode()))

#: keys and values present, empty and null in all combinations; headers repeated, empty, null, none
MESSAGES = (
    Message(b"key", b"value", DUPLICATES),
    Message(b"key", b"", DUPLICATES),
    Message(b"", b"value"),
    Message(b"", b""),
    Message(None, b"value"),
    Message(b"key", None),
    Message(None, None),
    Message("schlüssel → 鍵".encode(), "wërt → 値 \U0001f30a".encode()),
    Message(b"headers", b"empty", EMPTIES),
    Message(b"headers", b"null", NULLS),
    *(Message(b"key-%d" % (i % 7), b"value %d " % i * 40, (("number", b"%d" % i),)) for i in range(20)),
)

KCAT = needs_kcat(JSON, "gzip", "snappy", "lz4", "zstd")
adapters = [pytest.param(a, id=a.name, marks=[KCAT] if a.name == "kcat" else []) for a in ADAPTERS]
Produced = Callable[[Adapter, str], tuple[str, list[Message]]]
StoredCodecs = Callable[[str], set[str]]


@pytest.fixture(scope="module")
def produced(bootstrap: str, new_topic: NewTopicNamed) -> Produced:
    """A topic with the messages of one client in one codec, and those messages; made on first use."""

    topics: dict[tuple[str, str], tuple[str, list[Message]]] = {}

    def produce(adapter: Adapter, codec: str) -> tuple[str, list[Message]]:
        key = (adapter.name, codec)
        if key not in topics:
            topic = new_topic()
            messages = [m for m in MESSAGES if adapter.can_send(m)]
            adapter.produce(bootstrap, topic, messages, codec)
            topics[key] = (topic, messages)
        return topics[key]

    return produce


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", adapters)
@pytest.mark.parametrize("consumer", adapters)
def test_every_client_reads_every_other(
    bootstrap: str, produced: Produced, producer: Adapter, consumer: Adapter, codec: str
) -> None:
    topic, messages = produced(producer, codec)
    read = consumer.consume(bootstrap, topic, len(messages))
    assert [m.without_timestamp() for m in read] == messages


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", adapters)
def test_batches_are_stored_as_they_were_compressed(
    produced: Produced, stored_codecs: StoredCodecs, producer: Adapter, codec: str
) -> None:
    """Clients stop compressing, silently, for a broker whose versions they take for an old one's."""
    topic, _ = produced(producer, codec)
    # librdkafka leaves a batch as it is where compression would make it larger.
    assert stored_codecs(topic) - {"none"} == {codec} - {"none"}


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_that_insists_on_a_codec(
    bootstrap: str, new_topic: NewTopicNamed, stored_codecs: StoredCodecs, codec: str
) -> None:
    """Batches are recompressed in order, and readers see no difference."""
    topic = new_topic(compression_type="uncompressed" if codec == "none" else codec)
    expected: list[Message] = []
    for adapter in ADAPTERS[:3]:
        for theirs in CODECS:
            messages = [Message(b"k", f"{adapter.name} {theirs} {i}".encode()) for i in range(3)]
            adapter.produce(bootstrap, topic, messages, theirs)
            expected += messages
    assert stored_codecs(topic) == {codec}
    for adapter in ADAPTERS[:3]:
        read = adapter.consume(bootstrap, topic, len(expected))
        assert [m.without_timestamp() for m in read] == expected
