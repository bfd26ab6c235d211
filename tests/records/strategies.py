"""What Hypothesis draws records from."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.records.record import Record

content = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), content), max_size=3).map(tuple)
timestamps = st.integers(0, 2**41)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = False) -> list[Record]:
    """Records with rising offsets from 0 on, with holes in between if `gaps`."""
    drawn = draw(st.lists(st.tuples(timestamps, content, content, headers), min_size=1, max_size=20))
    offsets: list[int] = []
    for _ in drawn:
        hole = draw(st.integers(0, 300)) if gaps else 0
        offsets.append((offsets[-1] + 1 if offsets else 0) + hole)
    return [Record(offset, *fields) for offset, fields in zip(offsets, drawn, strict=True)]
