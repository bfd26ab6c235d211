"""The measured numbers on the pages are those of the results in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.rows import ROWS
from bench.table import Row
from docs import measured, parts
from docs.measured import PAGES, rendered
from tests.broker.node.silence import WITHIN_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_measured_numbers_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == rendered(text), f"{page.name} has other numbers than the results: run `make pages`"


def test_every_part_is_on_a_page() -> None:
    names = [name for page in PAGES for name in parts.names(measured.KIND, page.read_text())]
    assert names[1::2] == ["end"] * (len(names) // 2)
    assert set(names[::2]) == set(measured.PARTS)


def test_a_stale_number_is_replaced() -> None:
    stale = "survives <!-- measured: disasters -->3<!-- measured: end --> disasters"
    assert re.fullmatch(r"survives <!-- .* -->\d\d+<!-- .* --> disasters", rendered(stale))


_MEASURED = re.compile(r"<!-- measured: [a-z-]+ -->.*?<!-- measured: end -->", re.DOTALL)
_PLANNED = re.compile(r"<!-- planned: [a-z-]+ -->.*?<!-- planned: end -->", re.DOTALL)
_NUMBER = re.compile(r"(?<![=(])\b\d[\d.,]* (?:ms|s|MB|GB|µs|messages/s|samples/s|%)(?!\w)")
#: of `make cores-cost`
_CORES = re.compile(r"<!-- measured: begin \(make [a-z-]+\) -->.*?<!-- measured: end -->", re.DOTALL)
#: rendered from results or settings as a whole, or a load that a text describes
_WHOLE_PAGES = ("benchmarks.md", "comparison.md", "configuration.md", "newcomer.md")
_LOADS = ("1 GB", "200 MB")


def _typed_part(text: str) -> str:
    """The text of a page without what is rendered from results and plans, and without code."""
    for rendered_part in (_CORES, _MEASURED, _PLANNED):
        text = rendered_part.sub("", text)
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def test_no_page_has_typed_results_of_the_benchmarks() -> None:
    """In a paragraph that names `make bench`, numbers with a unit come from its results."""
    typed = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name in _WHOLE_PAGES:
            continue
        text = _typed_part(page.read_text(encoding="utf-8"))
        for paragraph in (part for part in text.split("\n\n") if "`make bench" in part):
            typed += [f"{page.name}: {n}" for n in _NUMBER.findall(paragraph) if n not in _LOADS]
    assert typed == []


#: a day, and words that introduce what somebody has measured once
_DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_RESULT = re.compile(r"\b(?:[Mm]easured|took|[Ii]n (?:a|one) run|rehearsal)\b(?:[^.]|\.\d)*")
#: Records of attempts and reviews. They are not updated; their numbers are compared within one entry.
_RECORDS = ("internals/hostile.md", "internals/performance.md")


def _is_typed(paragraph: str) -> bool:
    dated = _DAY.search(paragraph)
    return bool(dated or any(_NUMBER.search(result) for result in _RESULT.findall(paragraph)))


def _typed_results(page: Path) -> list[str]:
    paragraphs = _typed_part(page.read_text(encoding="utf-8")).split("\n\n")
    return [f"{page.name}: {paragraph.strip()[:200]}" for paragraph in paragraphs if _is_typed(paragraph)]


def test_no_page_has_typed_results_of_one_run() -> None:
    """A dated number on a page is not measured again when the code changes."""
    skipped = {ROOT / "docs" / name for name in (*_WHOLE_PAGES, *_RECORDS)}
    folders = ("", "internals", "tutorials")
    pages = {page for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")} - skipped
    assert [typed for page in sorted(pages) for typed in _typed_results(page)] == []


#: units that only results have; limits and configs are in bytes and KiB, in ms and seconds
_OF_RESULTS = re.compile(
    r"(?<![=(\w.`])\d[\d.,]* ?(?:µs|MB|GB|MB/s|GB/s|messages/s|samples/s|rows/s|cores|m?s of CPU)(?!\w)"
)
#: what a plan takes for granted, and loads of pages that describe them
_ASSUMED = ("10,000 messages/s", "2 cores", "4 GB", "1 GB", "512 GB")


def _of_results(text: str) -> list[str]:
    return [found for found in _OF_RESULTS.findall(_typed_part(text)) if found not in _ASSUMED]


def test_numbers_in_units_of_results_are_rendered() -> None:
    skipped = {ROOT / "docs" / name for name in (*_WHOLE_PAGES, *_RECORDS, "cli-reference.md")}
    folders = ("", "internals", "tutorials")
    pages = {page for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")} - skipped
    found = {page.name: _of_results(page.read_text(encoding="utf-8")) for page in sorted(pages)}
    assert {name: typed for name, typed in found.items() if typed} == {}


#: fractions and factors, in which a text may hide a result
_SHARES = re.compile(
    r"\d ?%|\d ?×|\b(?:a|one|two|three|four) (?:halfs?|thirds?|quarters?|fifths?|sixths?|eighths?|tenths?)\b"
)


@pytest.mark.parametrize("row", [row for row in ROWS if row.where], ids=lambda row: row.name)
def test_the_reason_of_a_miss_has_no_typed_result(row: Row) -> None:
    """What `perf` showed once is not measured again with the row."""
    assert row.where is not None
    assert not _OF_RESULTS.findall(row.where) and not _SHARES.findall(row.where)


@pytest.mark.parametrize("page", ["benchmarks.md", "comparison.md"])
def test_the_text_between_tables_of_results_has_no_typed_result(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rendered_lines = ("|", "- Machine", "- 2 cores")
    lines = [line for line in text.splitlines() if not line.startswith(rendered_lines)]
    assert [line for line in lines if _of_results(line)] == []


def test_a_row_of_a_table_with_a_typed_result_is_found() -> None:
    assert _of_results("| all | 5.70 MB, 71,691 samples, 160 ms |") == ["5.70 MB"]
    assert _of_results("| all | <!-- measured: details -->5.70 MB<!-- measured: end --> | `x=4 MB` |") == []


@pytest.mark.parametrize(
    ("paragraph", "typed"),
    [
        ("One round takes 14 ms on an H200 (2026-11-15).", True),
        ("It took 0.13 ms of CPU per message.", True),
        ("(Measured with three processes: 30 kills, each within 250 ms.)", True),
        ("Took over. A fetch waits 500 ms.", False),
        ("The session is 3 s, which is measured by a monotonic clock.", False),
    ],
)
def test_a_typed_result_is_recognised(paragraph: str, typed: bool) -> None:
    assert _is_typed(paragraph) is typed


def test_the_limits_for_silent_leaders_are_those_of_their_test() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    usual, deaf = WITHIN_S["hangs"], WITHIN_S["is deaf"]
    assert f"after more than {usual} s, or {deaf} s if the leader cannot\nreceive" in page


def test_the_readme_has_no_typed_measurement() -> None:
    """Numbers that were typed once said 70 disasters on one page and 72 on another."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    typed = _PLANNED.sub("", _MEASURED.sub("", readme))
    assert not re.findall(r"\d[\d.,]* (?:ms|MB|MB/s|GB|µs|messages/s|%|disasters)(?!\w)", typed)
