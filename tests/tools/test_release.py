"""A release has the same bytes each time, and all that users need."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from penstock.version import VERSION
from tools.client_distribution import DEPENDENCIES
from tools.release import ReleaseFailed, build, checksums

ROOT = Path(__file__).parents[2]
_CLIENTS = "penstock_mq_client"
#: what `pip install penstock-mq` installs beside the package; one more is a decision
CORE = {
    *("confluent-kafka", "cramjam", "crc32c", "google-re2", "msgspec"),
    *("pyyaml", "rich", "structlog", "typer", "uvloop"),
}


def _has_history() -> bool:
    command = ["git", "rev-parse", "--verify", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.mark.process
@pytest.mark.skipif(not _has_history(), reason="a release is built from a commit, and this is no clone")
def test_a_release_is_the_same_bytes_twice(tmp_path: Path) -> None:
    first, second = build(tmp_path / "first"), build(tmp_path / "second")
    names = [path.name for path in first]
    assert len(names) == 6 and {"SHA256SUMS", "sbom.cdx.json"} < set(names)
    for one, other in zip(first, second, strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes(), one.name
    _check_wheel(tmp_path / "first" / f"penstock_mq-{VERSION}-py3-none-any.whl")
    _check_clients(tmp_path / "first")
    _check_sources(tmp_path / "first" / f"penstock_mq-{VERSION}.tar.gz")
    bill = json.loads((tmp_path / "first" / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["components"]
    with pytest.raises(ReleaseFailed, match="is not empty"):
        build(tmp_path / "first")


def _check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        found = Parser().parsestr(wheel.read(metadata).decode())
        (source,) = re.findall(r'VERSION: Final = "(.+)"', wheel.read("penstock/version.py").decode())
    assert found["Version"] == source and path.name.startswith(f"penstock_mq-{source}-")
    core = [text for text in found.get_all("Requires-Dist") or () if "extra ==" not in text]
    assert {re.split(r"[<>=!;\[ ]", text)[0] for text in core} == CORE


def _check_clients(folder: Path) -> None:
    """Each file of the clients' wheel is one of the whole wheel, but for its metadata."""
    whole, clients = (folder / f"{name}-{VERSION}-py3-none-any.whl" for name in ("penstock_mq", _CLIENTS))
    with zipfile.ZipFile(whole) as first, zipfile.ZipFile(clients) as second:
        names = [name for name in second.namelist() if ".dist-info/" not in name]
        assert "penstock/client/producer.py" in names
        assert all(first.read(name) == second.read(name) for name in names)
        found = Parser().parsestr(second.read(f"{_CLIENTS}-{VERSION}.dist-info/METADATA").decode())
    core = [text for text in found.get_all("Requires-Dist") or () if "extra ==" not in text]
    assert {re.split(r"[<>=!;\[ ]", text)[0] for text in core} == set(DEPENDENCIES)


def _check_sources(path: Path) -> None:
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/penstock/version.py", "CHANGELOG.md"} <= names


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"x")
    (tmp_path / "a").write_bytes(b"")
    empty, x = hashlib.sha256(b"").hexdigest(), hashlib.sha256(b"x").hexdigest()
    assert checksums(tmp_path) == f"{empty}  a\n{x}  b\n"


def test_the_version_has_one_place_and_a_section_in_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert re.search(rf"^## {re.escape(VERSION)} - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
