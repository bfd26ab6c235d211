from __future__ import annotations

from disasters.published import PAGE, published


def test_the_page_shows_the_results_that_are_kept_beside_it() -> None:
    page = PAGE.read_text()
    assert published(page) == page, "run `python -m disasters --publish`"
