"""The rendered pages are the ones in the repository."""

from __future__ import annotations

from docs.render import PAGE, render


def test_the_configuration_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make docs`"
