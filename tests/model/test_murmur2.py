from __future__ import annotations

import pytest

from penstock.model.murmur2 import murmur2


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafkas_own_test(key: str, hashed: int) -> None:
    """`UtilsTest.testMurmur2` of Kafka, without the sign."""
    assert murmur2(key.encode()) == hashed & 0x7FFFFFFF
