"""Keys go to the partition that Kafka chooses for them."""

from __future__ import annotations

import pytest

from penstock.coordination.partitioning import java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", 0), ("é", 233), ("\U0001f30a", 1773134)],
)
def test_keys_hash_as_in_java(text: str, expected: int) -> None:
    """The hash of "polygenelubricants" is the one integer that has no absolute value in Java."""
    assert java_hash(text) == expected
