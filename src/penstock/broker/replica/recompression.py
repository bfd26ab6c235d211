"""How batches of other codecs are stored: `compression.type` of a topic, and the levels of its codec."""

from __future__ import annotations

from typing import NamedTuple

from penstock.records.codecs import Codec
from penstock.storage.config import LogConfig

__all__ = ["Recompression"]


class Recompression(NamedTuple):
    """The codec of all stored batches of a topic."""

    codec: Codec
    level: int | None

    @classmethod
    def of(cls, config: LogConfig) -> Recompression | None:
        """None if batches keep the codec of their producer."""
        if config.compression_type == "producer":
            return None
        codec = Codec.from_label(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        return cls(codec, levels.get(codec))
