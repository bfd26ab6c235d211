"""Files with secrets that other users can read."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.broker.base.secret_files import exposure_of


@pytest.mark.parametrize(
    ("mode", "owner", "user", "is_exposed"),
    [
        (0o600, 1000, 1000, False),
        (0o400, 1000, 1000, False),
        (0o640, 1000, 1000, True),
        (0o604, 1000, 1000, True),
        (0o602, 1000, 1000, True),
        (0o644, 0, 0, True),
        (0o640, 0, 0, True),
        # A service manager gives a file of root to the group of the service.
        (0o640, 0, 1000, False),
        (0o660, 0, 1000, True),
        (0o644, 0, 1000, True),
    ],
)
def test_modes(monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, user: int, is_exposed: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_mode=0o100000 | mode, st_uid=owner))
    assert (exposure_of("x") is not None) is is_exposed


def test_real_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    assert exposure_of(secret) is None
    secret.write_text("x")
    secret.chmod(0o644)
    assert exposure_of(secret) == "other users of this machine can read it (mode 0644): chmod 600"
    secret.chmod(0o600)
    assert exposure_of(secret) is None
    tmp_path.chmod(0o755)
    assert exposure_of(tmp_path) is None
