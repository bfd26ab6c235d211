"""What `make test-tools` installs."""

from __future__ import annotations

import pytest

from tools import test_tools


def test_packages_of_missing_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_tools, "find_chromium", lambda: None)
    monkeypatch.setattr("shutil.which", lambda program: None if program == "promtool" else program)
    assert test_tools.missing_packages() == ["chromium", "prometheus"]


def test_without_root_it_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test_tools, "missing_packages", lambda: ["npm"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    test_tools.main()
    assert "apt-get install -y -qq --no-install-recommends npm" in capsys.readouterr().out
