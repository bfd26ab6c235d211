"""What exporters serve, and the labels that they use for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.labels import MalformedLabels, origin, parse_labels
from penstock.telemetry.message import Sample
from penstock.telemetry.scrape import MalformedExposition, read_exposition

UUID = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
OLD = f"""\
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",\
Hostname="dgx-031",DCGM_FI_DRIVER_VERSION="535.129.03",container="",namespace="ml",pod="train-0"}} 61
# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 12
"""
NEW = f"""\
# TYPE DCGM_FI_DEV_GPU_TEMP_CELSIUS gauge
DCGM_FI_DEV_GPU_TEMP_CELSIUS{{gpu="0",gpu_uuid="{UUID}",device="nvidia0",model_name="NVIDIA H100 80GB HBM3",\
hostname="dgx-031",driver_version="535.129.03",namespace="ml",pod="train-0"}} 61
"""


@pytest.mark.parametrize("text", [OLD, NEW])
def test_old_and_new_exporters_give_the_same_samples(text: str) -> None:
    labels = {
        "model_name": "NVIDIA H100 80GB HBM3",
        "driver_version": "535.129.03",
        "namespace": "ml",
        "pod": "train-0",
    }
    found = read_exposition(text, 1000)
    assert found.samples == [Sample(1000, FIELDS[150], UUID, "nvidia0", "dgx-031", 61.0, labels)]


def test_every_line_is_counted() -> None:
    text = OLD + f'DCGM_FI_DEV_POWER_USAGE{{UUID="{UUID}"}} NaN\nDCGM_FI_DEV_POWER_USAGE{{gpu="0"}} 7\n'
    found = read_exposition(text, 0)
    assert (len(found.samples), found.foreign, found.blank) == (1, 2, 1)


def test_a_lines_own_time_counts() -> None:
    (sample,) = read_exposition(f'DCGM_FI_DEV_GPU_UTIL{{UUID="{UUID}"}} 5 1700000000123\n', 0).samples
    assert sample.timestamp_ms == 1700000000123


def test_dcgms_blanks_are_passed_on() -> None:
    (sample,) = read_exposition(
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="{UUID}"}} 9223372036854775794\n', 0, "here"
    ).samples
    assert sample.value == 9223372036854775794
    assert sample.hostname == "here"


@pytest.mark.parametrize("text", ["<html>", "DCGM_FI_DEV_GPU_UTIL{", 'a{b="c} 1', "DCGM_FI_DEV_GPU_UTIL x"])
def test_malformed_expositions_are_refused(text: str) -> None:
    with pytest.raises(MalformedExposition):
        read_exposition(text, 0)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_exposition(text, 7)
    except MalformedExposition:
        return
    assert len(found.samples) <= len(text.splitlines())


def test_a_device_is_made_of_its_index_where_need_be() -> None:
    assert origin({"gpu": "3", "UUID": UUID}).device == "nvidia3"
    assert origin({"gpu": "3", "UUID": UUID, "device": "nvidia4"}).device == "nvidia4"


def test_empty_labels_are_left_out() -> None:
    assert origin({"UUID": UUID, "pod": "", "Hostname": ""}, "here") == (UUID, "", "here", {})


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,12}", fullmatch=True)


@given(st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs", "Cc"]))), st.booleans())
def test_labels_there_and_back(labels: dict[str, str], braces: bool) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"')

    text = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    assert parse_labels(f"{{{text}}}" if braces else text) == labels


@pytest.mark.parametrize("text", ['a="b', "a=b", '="b"', 'a="b"\nc="d"', 'a="b"} 2 {'])
def test_malformed_label_lists_are_refused(text: str) -> None:
    with pytest.raises(MalformedLabels):
        parse_labels(text)
