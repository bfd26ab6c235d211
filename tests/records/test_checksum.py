"""The extension is found without its package, and computes what RFC 3720 says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.records.checksum import crc32c


def test_the_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_checksum_continues_from_an_earlier_one() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


@pytest.mark.process
def test_the_package_and_its_imports_stay_out() -> None:
    code = "import sys, penstock.records.checksum; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
