"""A sample, and the JSON in which it travels.

    key      the GPU's uuid, so that one GPU's samples stay in order in one partition
    headers  source (which collector), version (of this form), content-type
    value    {"timestamp": "2025-07-18T20:42:34.000Z", "metric_name": "DCGM_FI_DEV_GPU_UTIL",
              "gpu_id": "GPU-5fd4…", "device": "nvidia0", "hostname": "dgx-031", "value": 85.0,
              "labels": {"driver_version": "535.129.03", "model_name": "NVIDIA H100 80GB HBM3"}}

Collectors send the canonical name of a field; readers accept any of its names. A sample without a GPU
(the `up` of a scraped target) has the target in the place of the GPU, because something must identify it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from penstock.model.errors import PenstockError
from penstock.telemetry.fields import Field, field

__all__ = [
    "CONTENT_TYPE",
    "TOPIC",
    "VERSION",
    "MalformedSample",
    "Message",
    "Sample",
    "as_message",
    "decode",
    "encode",
    "format_timestamp",
    "headers",
    "parse_timestamp",
]

TOPIC: Final = "gpu-telemetry"
VERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class MalformedSample(PenstockError):
    """Bytes that are no sample; the message says why."""


class Sample(NamedTuple):
    """One value of one field of one GPU at one time."""

    timestamp_ms: int
    field: Field
    gpu_id: str
    device: str
    hostname: str
    value: float
    labels: dict[str, str]


class Message(NamedTuple):
    """An encoded sample: the key, value and timestamp for a producer."""

    key: bytes
    value: bytes
    timestamp_ms: int


class _Document(msgspec.Struct):
    """The JSON, field by field and in its order."""

    timestamp: str
    metric_name: str
    gpu_id: str
    device: str
    hostname: str
    value: float
    labels: dict[str, str] = {}


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Document)


def headers(source: str) -> list[tuple[str, bytes]]:
    """The headers of every message of a collector."""
    return [
        ("source", source.encode()),
        ("version", VERSION.encode()),
        ("content-type", CONTENT_TYPE.encode()),
    ]


def encode(sample: Sample) -> bytes:
    assert math.isfinite(sample.value), "JSON cannot represent this number; collectors leave such values out"
    return _encoder.encode(
        _Document(
            format_timestamp(sample.timestamp_ms),
            sample.field.name,
            sample.gpu_id,
            sample.device,
            sample.hostname,
            float(sample.value),
            sample.labels,
        )
    )


def as_message(sample: Sample) -> Message:
    return Message(sample.gpu_id.encode(), encode(sample), sample.timestamp_ms)


def decode(data: bytes) -> Sample:
    """The sample in a message's value; MalformedSample if it is none, or of a field that is not known."""
    try:
        document = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedSample(str(error)) from error
    known = field(document.metric_name)
    if known is None:
        raise MalformedSample(f"unknown metric {document.metric_name!r}")
    if not document.gpu_id:
        raise MalformedSample("no gpu_id")
    return Sample(
        parse_timestamp(document.timestamp),
        known,
        document.gpu_id,
        document.device,
        document.hostname,
        document.value,
        document.labels,
    )


def format_timestamp(timestamp_ms: int) -> str:
    """RFC 3339 in UTC, always with milliseconds."""
    moment = _EPOCH + timestamp_ms * _MILLISECOND
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def parse_timestamp(text: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 time, which must name its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise MalformedSample(f"{text!r} is not an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise MalformedSample(f"{text!r} has no time zone")
    return (moment - _EPOCH) // _MILLISECOND
