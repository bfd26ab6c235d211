"""The codec and the level that a topic's configs ask for."""

from __future__ import annotations

import pytest

from penstock.broker.replica.recompression import Recompression
from penstock.records.codecs import Codec
from penstock.storage.config import LogConfig


@pytest.mark.parametrize(
    ("config", "recompression"),
    [
        (LogConfig(), None),
        (LogConfig(compression_type="zstd", compression_zstd_level=7), (Codec.ZSTD, 7)),
        (LogConfig(compression_type="gzip", compression_gzip_level=2), (Codec.GZIP, 2)),
        (LogConfig(compression_type="snappy"), (Codec.SNAPPY, None)),
        (LogConfig(compression_type="uncompressed"), (Codec.NONE, None)),
    ],
)
def test_batches_are_recompressed_as_the_topic_asks(
    config: LogConfig, recompression: tuple[Codec, int | None] | None
) -> None:
    assert Recompression.of(config) == recompression
