"""The codecs of record batches."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Codec"]


class Codec(IntEnum):
    """A batch's codec: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The value of `compression.type` that means this codec; on the command line, too."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> Codec:
        """The inverse of `label` ("uncompressed", as topics say, is "none"); ValueError on anything else."""
        if label == "uncompressed":
            return cls.NONE
        for codec in cls:
            if codec.label == label:
                return codec
        raise ValueError(f"{label!r} is not a codec: use {', '.join(codec.label for codec in cls)}")
