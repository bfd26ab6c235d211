"""Chromium is installed only where that is allowed."""

from __future__ import annotations

import pytest

from tools import chromium


@pytest.mark.parametrize(
    ("environment", "is_root", "has_apt", "wanted"),
    [
        ({"CI": "true"}, True, True, True),
        ({}, True, True, False),
        ({"CI": "true"}, False, True, False),
        ({"CI": "true"}, True, False, False),
    ],
)
def test_system_packages_only_as_root_in_ci(
    environment: dict[str, str], is_root: bool, has_apt: bool, wanted: bool
) -> None:
    assert chromium.may_install(environment, is_root, has_apt) is wanted


def test_one_line_explains_how_to_install_chromium(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chromium, "find_chromium", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    chromium.main()
    assert capsys.readouterr().out == f"tests in a browser are skipped: {chromium.HOW_TO}\n"
