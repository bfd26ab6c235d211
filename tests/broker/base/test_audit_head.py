"""The file with the last event of a chain."""

from __future__ import annotations

import stat
from pathlib import Path

from penstock.audit.chain import Head
from penstock.broker.base.audit_head import HeadFile, head_content, read_head
from tests.broker.events import Events

HEAD = Head("1/file/a", 7, "f" * 64)
KEY = b"0123456789abcdef"


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "head"
    file = HeadFile(str(path), KEY)
    assert file.read() is None
    file.write(HEAD)
    file.write(HEAD._replace(seq=8))
    assert file.read() == HEAD._replace(seq=8)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_head_with_another_key_or_other_numbers_is_refused(tmp_path: Path, events: Events) -> None:
    """An attacker without the key could set the chain back otherwise."""
    path = tmp_path / "head"
    HeadFile(str(path), KEY).write(HEAD)
    assert HeadFile(str(path), b"another key here").read() is None
    path.write_bytes(path.read_bytes().replace(b'"seq":7', b'"seq":6'))
    assert HeadFile(str(path), KEY).read() is None
    assert len(events.of("audit_head_invalid")) == 2
    for garbage in (b"", b"[]", b"{}", head_content(HEAD, KEY)[:-10]):
        assert read_head(garbage, KEY) is None
