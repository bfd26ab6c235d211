"""The state of an image, and images replayed from records."""

from __future__ import annotations

from typing import Any

from penstock.metadata.image import ClusterImage
from penstock.metadata.snapshot import image_of_snapshot, snapshot
from penstock.wire.metadata_records import (
    decode_metadata_record,
    encode_metadata_record,
)


def state(thing: object) -> Any:
    """All contents of an image as plain values, fields that are added later included."""
    if isinstance(thing, dict):
        return {key: state(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [state(value) for value in thing]
    if isinstance(thing, bytes | str | int | float | None):
        return thing
    names = getattr(type(thing), "__slots__", None) or vars(thing)
    # A snapshot has no offsets: that a shutdown began before the snapshot's end is enough.
    left_out = ("shutdown_offset", "fenced_offset", "generation", "quota_generation", "membership")
    return {name: state(getattr(thing, name)) for name in names if name not in left_out}


def replayed(image: ClusterImage) -> ClusterImage:
    """By way of bytes, as on a disk."""
    records = [decode_metadata_record(encode_metadata_record(record)) for record in snapshot(image)]
    return image_of_snapshot(records, image.offset)
