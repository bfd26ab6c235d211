"""The JSON of a sample, there and back, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.message import (
    MalformedSample,
    Sample,
    as_message,
    decode,
    encode,
    format_timestamp,
    headers,
    parse_timestamp,
)

#: the message of the first seed
SEED = {
    "timestamp": "2025-07-18T20:42:34Z",
    "metric_name": "DCGM_FI_DEV_GPU_UTIL",
    "gpu_id": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
    "device": "nvidia0",
    "hostname": "mtv5-dgx1-hgpu-031",
    "value": 85.0,
    "labels": {"driver_version": "535.129.03", "model_name": "NVIDIA H100 80GB HBM3"},
}
#: 1970 to the year 9999
moments = st.integers(0, 253_402_300_799_999)
samples = st.builds(
    Sample,
    moments,
    st.sampled_from(sorted(FIELDS.values(), key=lambda one: one.id)),
    st.text(min_size=1),
    st.text(),
    st.text(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.text(), st.text()),
)


def test_the_seeds_message() -> None:
    sample = decode(json.dumps(SEED).encode())
    assert sample == Sample(
        int(datetime(2025, 7, 18, 20, 42, 34, tzinfo=UTC).timestamp() * 1000),
        FIELDS[203],
        "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "nvidia0",
        "mtv5-dgx1-hgpu-031",
        85.0,
        {"driver_version": "535.129.03", "model_name": "NVIDIA H100 80GB HBM3"},
    )
    again = json.loads(encode(sample))
    assert again == {**SEED, "timestamp": "2025-07-18T20:42:34.000Z"}
    assert list(again) == list(SEED), "in the seeds' order"


def test_the_key_timestamp_and_headers_of_a_message() -> None:
    message = as_message(decode(json.dumps(SEED).encode()))
    assert message.key == b"GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
    assert message.timestamp_ms == parse_timestamp("2025-07-18T20:42:34Z")
    assert headers("replay") == [
        ("source", b"replay"),
        ("version", b"1.0"),
        ("content-type", b"application/json"),
    ]


@given(samples)
def test_there_and_back(sample: Sample) -> None:
    assert decode(encode(sample)) == sample


@given(moments)
def test_times_there_and_back(moment: int) -> None:
    assert parse_timestamp(format_timestamp(moment)) == moment


def test_a_new_name_is_read_as_the_field_it_is() -> None:
    renamed = {**SEED, "metric_name": "DCGM_FI_DEV_GPU_UTIL_RATIO"}
    assert decode(json.dumps(renamed).encode()).field is FIELDS[203]


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": "yesterday"},
        {"timestamp": "2025-07-18T20:42:34"},
        {"timestamp": 17},
        {"metric_name": "DCGM_FI_DEV_NONSENSE"},
        {"gpu_id": ""},
        {"gpu_id": None},
        {"value": "85"},
        {"value": None},
        {"labels": ["a"]},
        {"labels": {"a": 1}},
    ],
)
def test_malformed_samples_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(MalformedSample):
        decode(json.dumps({**SEED, **change}).encode())


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes_are_a_sample_or_refused(data: bytes) -> None:
    with pytest.raises(MalformedSample):
        decode(data)
