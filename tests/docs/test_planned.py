"""The numbers of plans on the pages are those of the coefficients in the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import parts, planned
from docs.planned import PAGES, PAPER_CLUSTERS, rendered


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_numbers_of_plans_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == rendered(text), (
        f"{page.name} has other numbers than `penstock plan` with the coefficients of the package: "
        "run `make pages`, and commit the page"
    )


def test_every_part_is_on_a_page() -> None:
    names = [name for page in PAGES for name in parts.names(planned.KIND, page.read_text())]
    assert names[1::2] == ["end"] * (len(names) // 2)
    assert sorted(names[::2]) == sorted(planned.PARTS)


def test_a_stale_number_is_replaced() -> None:
    stale = "needs <!-- planned: resident -->1 MB<!-- planned: end --> at start"
    assert re.fullmatch(r"needs <!-- .* -->[\d.]+ MB<!-- .* --> at start", rendered(stale))
    assert rendered(stale) != stale


def test_the_paper_clusters_are_those_of_the_requirements() -> None:
    assert {(case.rate, case.size_bytes) for case in PAPER_CLUSTERS} == {
        (rate, size) for rate in (1e6, 10e6) for size in (1_000, 10_000)
    }
