from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.archive.documents import Manifest, Page, Root, decode, encode
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from tests.archive.logs import chain, log_of, new_store, sealed

ROOT = Root(id="an-id", created_ms=7)


def sealed_line(data: bytes) -> bytes:
    """The first line of `data`, sealed as other programs would seal it."""
    line = data.splitlines()[0] + b"\n"
    return (
        line
        + json.dumps({"sha256": hashlib.sha256(line).hexdigest()}, separators=(",", ":")).encode()
        + b"\n"
    )


@given(st.integers(0, len(encode(ROOT)) - 1), st.integers(0, 7))
def test_every_changed_bit_is_found(at: int, bit: int) -> None:
    """The newest manifest is found by its number: no other document has its checksum."""
    data = bytearray(encode(ROOT))
    data[at] ^= 1 << bit
    with pytest.raises((ArchiveDamaged, ArchiveRefused)):
        decode(bytes(data), Root, "it")


def test_a_document_is_read_as_it_was_written() -> None:
    manifest = chain(new_store()).first(0, 3, compacted=True)
    for document in (
        ROOT,
        manifest,
        Page(topic="t", topic_id="x", partition=0, segments=(sealed(log_of(0, 3)).entry,)),
    ):
        assert decode(encode(document), type(document), "it") == document


def test_a_newer_version_is_refused_with_one_line() -> None:
    newer = sealed_line(encode(ROOT).replace(b'"version":1', b'"version":2'))
    with pytest.raises(ArchiveRefused) as refused:
        decode(newer, Root, "archive.json")
    assert str(refused.value) == (
        "archive.json has version 2 of the archive format, this Penstock reads 1: upgrade it"
    )


def test_a_newer_version_may_have_other_fields() -> None:
    """The version is read first: what else is in the document does not matter."""
    with pytest.raises(ArchiveRefused):
        decode(b'{"format":"penstock-archive","version":9,"kind":5}\nanother seal', Manifest, "it")


def test_unknown_fields_are_ignored() -> None:
    fields = json.loads(encode(ROOT).splitlines()[0]) | {"later": [1, 2]}
    assert decode(sealed_line(json.dumps(fields).encode() + b"\n"), Root, "it") == ROOT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b"\xff\xfe",
        encode(ROOT)[:-10],
        sealed_line(encode(ROOT).replace(b"penstock-archive", b"other")),
        sealed_line(encode(ROOT).replace(b'"version":1', b'"version":0')),
        sealed_line(encode(ROOT).replace(b'"archive",', b'"manifest",')),
        sealed_line(encode(ROOT).replace(b'"created_ms":7', b'"created_ms":"7"')),
    ],
)
def test_other_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(ArchiveDamaged, match=r"^it "):
        decode(data, Root, "it")
