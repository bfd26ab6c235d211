"""Reads audit events from files, from the files of a syslog server, and from the audit topic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.audit.chain import Head, parse_head
from penstock.audit.verification import Entry, Finding, read_entry
from penstock.cli.failure import Failure, misused

if TYPE_CHECKING:
    from penstock.cli.option_groups import Connection

__all__ = ["file_entries", "known_heads", "topic_entries"]

#: the text of a syslog message of an audit event
_MESSAGE: Final = re.compile(rb'\{(?=[^\n]*"chain":)[^\n]*\}')
_POLL_S: Final = 1.0


def file_entries(paths: list[Path], key: bytes, *, syslog: bool) -> Iterator[Entry | Finding]:
    """The events of files in the order of their writing."""
    ordered = _with_older(paths[0]) if len(paths) == 1 and not syslog else paths
    for path in ordered:
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    text: bytes | None = line.rstrip(b"\n")
                    if syslog:
                        found = _MESSAGE.search(line)
                        text = None if found is None else found[0]
                    if text is not None:
                        yield read_entry(f"{path}:{number}", text, key)
        except OSError as e:
            raise Failure(f"cannot read {path}: {e.strerror}") from e


def _with_older(path: Path) -> list[Path]:
    """FILE.2, FILE.1, FILE: the oldest one first."""
    older: list[tuple[int, Path]] = []
    for each in path.parent.glob(f"{path.name}.*"):
        number = each.name[len(path.name) + 1 :]
        if number.isdigit():
            older.append((int(number), each))
    return [*(each for _, each in sorted(older, reverse=True)), path]


def known_heads(path: Path, key: bytes) -> list[Head]:
    """The heads in a file of a broker, or in an earlier output of `penstock audit verify --json`."""
    from penstock.broker.base.audit_head import read_head

    try:
        content = path.read_bytes()
        fields: Any = json.loads(content)
    except OSError as e:
        raise Failure(f"cannot read {path}: {e.strerror}") from e
    except ValueError:
        misused(f"{path} has no heads of audit chains")
    if isinstance(fields, dict) and "code" in fields:
        head = read_head(content, key)
        if head is None:
            raise Failure(f"{path} was changed, or its key is another one: give --key-file")
        return [head]
    listed = fields.get("heads") if isinstance(fields, dict) else None
    heads = [parse_head(each) for each in listed] if isinstance(listed, list) else []
    if not heads or None in heads:
        misused(f"{path} has no heads of audit chains")
    return [head for head in heads if head is not None]


def topic_entries(connection: Connection, key: bytes) -> list[Entry | Finding]:
    """The events of the audit topic, those of each chain in the order of their numbers.

    Why: the chain of a broker may continue in another partition, so the order of offsets says nothing.
    """
    entries: list[Entry] = []
    found: list[Entry | Finding] = []
    for partition, offset, value in _records(connection):
        entry = read_entry(f"__audit-{partition}@{offset}", value, key)
        if isinstance(entry, Finding):
            found.append(entry)
            continue
        entries.append(entry)
    starts: dict[str, int] = {}
    for nth, entry in enumerate(entries):
        starts.setdefault(entry.head.chain, nth)
    # A chain that continues another one has begun later.
    entries.sort(key=lambda entry: (_began(entry.head.chain), starts[entry.head.chain], entry.head.seq))
    return [*found, *entries]


def _began(chain: str) -> int:
    """When a chain has begun, by its name."""
    text = chain.rpartition("/")[2].partition("-")[0]
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _records(connection: Connection) -> Iterator[tuple[int, int, bytes]]:
    """All records of the audit topic up to its present end: partition, offset and value."""
    from confluent_kafka import KafkaError, TopicPartition

    from penstock.model.ids import AUDIT_TOPIC

    cluster = connection.cluster()
    consumer = cluster.consumer({"fetch.wait.max.ms": 100})
    try:
        described = cluster.metadata(consumer, AUDIT_TOPIC).topics.get(AUDIT_TOPIC)
        if described is None or described.error is not None:
            reason = "" if described is None else f": {described.error.str()}"
            raise Failure(f"the topic {AUDIT_TOPIC} cannot be read{reason}")
        ends: dict[int, int] = {}
        places = []
        for number in described.partitions:
            place = TopicPartition(AUDIT_TOPIC, number)
            start, end = consumer.get_watermark_offsets(place, timeout=connection.timeout)
            if start < end:
                ends[number] = end
                places.append(TopicPartition(AUDIT_TOPIC, number, start))
        if places:
            consumer.assign(places)
        while ends:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise Failure(error.str())
                ends.pop(message.partition(), None)
                continue
            number = message.partition()
            if number in ends and message.offset() < ends[number]:
                yield number, message.offset(), message.value() or b""
                if message.offset() + 1 >= ends[number]:
                    del ends[number]
    finally:
        consumer.close()
