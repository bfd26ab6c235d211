"""The hashes of the pinned packages."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from tools.hashes import FILES, canonical, entry, is_supported, pinned

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("versions", "hashes"), FILES.items())
def test_each_pinned_version_has_hashes_and_nothing_else_has(versions: str, hashes: str) -> None:
    """After a change of a version: `python -m tools.hashes`."""
    wanted = pinned((ROOT / versions).read_text())
    text = (ROOT / hashes).read_text()
    found = re.findall(r"^(\S+)==(\S+) \\$", text, re.MULTILINE)
    assert found == wanted
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        if "==" in block:
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_no_address_of_an_index_is_stored() -> None:
    for name in FILES.values():
        assert "://" not in (ROOT / name).read_text()


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("six-1.17.0.tar.gz", True),
        ("uvloop-0.23.0-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("uvloop-0.23.0-cp311-cp311-macosx_11_0_arm64.whl", True),
        ("cryptography-50.0.2-cp39-abi3-musllinux_1_2_aarch64.whl", True),
        ("uvloop-0.23.0-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("uvloop-0.23.0-cp313-cp313-win_amd64.whl", False),
        ("msgspec-0.22.0-pp311-pypy311_pp73-manylinux_2_17_x86_64.whl", False),
        ("x-1-cp313-cp313-pyodide_2025_0_wasm32.whl", False),
        ("x-1.exe", False),
    ],
)
def test_files_of_supported_systems(filename: str, expected: bool) -> None:
    assert is_supported(filename) is expected


def test_names_and_lines() -> None:
    assert canonical("PyYAML_x.y") == "pyyaml-x-y"
    assert pinned("# a comment\n\nA==1.0  # why\nb-c==2\n") == [("A", "1.0"), ("b-c", "2")]
    with pytest.raises(ValueError, match="is not NAME==VERSION"):
        pinned("a>=1\n")


@pytest.mark.process
def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """As `tools.environment` calls it."""
    wheel = tmp_path / "trapped-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("trapped.py", "")
        file.writestr(
            "trapped-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: trapped\nVersion: 1.0\n"
        )
        file.writestr("trapped-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("trapped-1.0.dist-info/RECORD", "")

    def install(digest: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "hashes.txt").write_text(entry("trapped", "1.0", [digest]))
        options = ["--require-hashes", "--no-deps", "--no-index", "--find-links", str(tmp_path)]
        target = ["--target", str(tmp_path / "installed"), "--requirement", str(tmp_path / "hashes.txt")]
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, *target]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    refused = install("0" * 64)
    assert refused.returncode != 0 and "DO NOT MATCH" in refused.stdout + refused.stderr
    assert not (tmp_path / "installed").exists()
    right = install(sha256(wheel.read_bytes()).hexdigest())
    assert right.returncode == 0, right.stderr
