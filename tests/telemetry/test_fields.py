"""The table of fields: its names, its numbers, and what counts as no value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.fields import (
    FIELDS,
    FIRST_BLANK,
    Blank,
    Field,
    FieldType,
    Kind,
    Verdict,
    blank,
    field,
    smi_field,
)

every_field = st.sampled_from(sorted(FIELDS.values(), key=lambda one: one.id))


def named(name: str) -> Field:
    found = field(name)
    assert found is not None, name
    return found


def test_every_name_and_column_belongs_to_one_field() -> None:
    names = [name for one in FIELDS.values() for name in (one.name, *one.aliases)]
    columns = [column for one in FIELDS.values() for column in one.smi]
    assert len(names) == len(set(names))
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize(
    ("id", "old", "new"),
    [
        (140, "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
        (150, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        (155, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        (203, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
        (230, "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
        (112, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
        (1002, "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
        (1004, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
    ],
)
def test_names_before_and_after_dcgm_4_6_are_one_field(id: int, old: str, new: str) -> None:
    assert named(old) is named(new) is FIELDS[id]


@given(every_field)
def test_any_name_leads_to_the_field(one: Field) -> None:
    assert all(field(name) is one for name in (one.name, *one.aliases))
    assert all(smi_field(column) is one for column in one.smi)


def test_an_unknown_name_is_no_field() -> None:
    assert field("DCGM_FI_DEV_NO_SUCH_THING") is None
    assert smi_field("no.such.column") is None


@given(every_field, st.sampled_from(list(Blank)))
def test_each_blank_of_a_type_has_its_reason(one: Field, reason: Blank) -> None:
    value = FIRST_BLANK[one.type] + list(Blank).index(reason)
    assert blank(one.type, value) is reason
    assert one.judge(value) is Verdict.BLANK


@given(st.sampled_from(list(FieldType)), st.integers(0, 15))
def test_a_blank_value_stays_blank_after_a_conversion_to_float(type: FieldType, beyond: int) -> None:
    """JSON's numbers are doubles: 0x7ffffffffffffff0 arrives as 2 to the 63rd."""
    assert blank(type, float(FIRST_BLANK[type] + beyond)) is not None


@given(every_field, st.data())
def test_a_possible_value_is_never_a_blank(one: Field, data: st.DataObject) -> None:
    value = data.draw(st.floats(one.low, one.high))
    assert blank(one.type, value) is None
    assert one.judge(value) is Verdict.VALID


def test_a_blank_of_another_type_is_a_value() -> None:
    energy = FIELDS[156]
    assert (energy.type, energy.kind) == (FieldType.INT64, Kind.COUNTER)
    assert energy.judge(FIRST_BLANK[FieldType.INT32]) is Verdict.VALID
    assert energy.judge(FIRST_BLANK[FieldType.DOUBLE]) is Verdict.VALID


def test_impossible_values_are_refused() -> None:
    utilisation = named("DCGM_FI_DEV_GPU_UTIL")
    assert utilisation.judge(101) is Verdict.OUT_OF_RANGE
    assert utilisation.judge(-1) is Verdict.OUT_OF_RANGE
    assert utilisation.judge(float("nan")) is Verdict.NOT_A_NUMBER
    assert utilisation.judge(float("-inf")) is Verdict.OUT_OF_RANGE
    assert utilisation.judge(float("inf")) is Verdict.BLANK


def test_a_last_code_is_neither_gauge_nor_counter() -> None:
    assert [one.name for one in FIELDS.values() if one.kind is Kind.LAST_CODE] == ["DCGM_FI_DEV_XID_ERRORS"]
