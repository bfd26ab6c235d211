"""The page of documented differences is what the list says."""

from __future__ import annotations

from differential.allowed import ALLOWED
from differential.page import PAGE, render


def test_the_page_is_rendered_from_the_list() -> None:
    assert PAGE.read_text() == render(), "run python -m differential.page"


def test_every_entry_is_on_the_page() -> None:
    assert all(entry.reason in render() for entry in ALLOWED)
