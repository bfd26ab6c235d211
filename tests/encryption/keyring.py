"""Keys for tests."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

from penstock.encryption.keys import format_key, parse_keys

OLD = format_key("old", bytes(range(32)))
NEW = format_key("new", bytes(range(32, 64)))
OTHER = format_key("old", bytes(range(64, 96)))
RING = parse_keys(OLD)
