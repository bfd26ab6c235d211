"""Small files with a checksum: what has changed in them is refused; earlier releases wrote none."""

from __future__ import annotations

import pytest

from penstock.storage.checkpoint import (
    format_checked,
    format_fields,
    is_checked,
    parse_checkpoint,
    parse_fields,
)
from tests.storage.earlier_releases import of_version_0

NAMES = frozenset({"version", "topic_id"})
LINES = b"version: 0\ntopic_id: abc\n"


def test_fields_without_a_checksum_are_accepted() -> None:
    assert parse_fields(LINES, NAMES) == {"version": "0", "topic_id": "abc"}


def test_any_flipped_bit_of_fields_is_noticed() -> None:
    content = format_fields(LINES)
    assert parse_fields(content, NAMES) == {"version": "0", "topic_id": "abc"}
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(ValueError):
            parse_fields(bytes(damaged), NAMES)


@pytest.mark.parametrize("size", [0, 5, 10, 12, len(LINES) - 1, len(LINES) + 4, len(LINES) + 16])
def test_fields_that_were_cut_are_refused(size: int) -> None:
    with pytest.raises(ValueError):
        parse_fields(format_fields(LINES)[:size], frozenset({"topic_id"}))


def test_earlier_releases_find_the_fields_before_the_checksum() -> None:
    lines = format_fields(LINES).decode().split("\n")
    assert dict(line.split(": ") for line in lines if line)["topic_id"] == "abc"


def test_a_checkpoint_without_a_checksum_is_accepted() -> None:
    content = of_version_0(["a 1", "b 2"])
    assert not is_checked(content)
    assert parse_checkpoint(content) == parse_checkpoint(format_checked(["a 1", "b 2"])) == ["a 1", "b 2"]
