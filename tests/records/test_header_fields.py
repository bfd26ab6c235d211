from __future__ import annotations

from penstock.records import header_fields
from penstock.records.batch import HEADER, BatchHeader


def test_every_field_of_a_header_has_its_position() -> None:
    positions = {
        "magic" if name == "MAGIC_BYTE" else name.lower(): position
        for name, position in vars(header_fields).items()
        if name.isupper()
    }
    assert positions == {name: position for position, name in enumerate(BatchHeader._fields)}


def test_positions_are_those_of_the_packed_header() -> None:
    packed = HEADER.pack(*range(100, 103), 2, *range(104, 113))
    assert HEADER.unpack(packed)[header_fields.PRODUCER_ID] == 109
    assert BatchHeader._make(HEADER.unpack(packed)).producer_id == 109
