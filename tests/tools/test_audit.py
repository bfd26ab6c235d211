"""Known vulnerabilities and licences of dependencies."""

from __future__ import annotations

import json
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.advisories import COPY, compact, copied, names_of_project
from tools.audit import EXCEPTIONS, is_affected, licence_of, licence_problems, vulnerabilities


def advisory(*ranges: list[dict[str, str]], versions: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": "PYSEC-1", "aliases": ["CVE-1"], "ranges": list(ranges), "versions": list(versions)}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.9", False), ("1.0", True), ("1.5.1", True), ("2.0", False), ("2.0rc1", True), ("3.1", True)],
)
def test_versions_in_ranges(version: str, expected: bool) -> None:
    found = advisory([{"introduced": "1.0"}, {"fixed": "2.0"}], [{"introduced": "3.0"}])
    assert is_affected(version, found) is expected


def test_other_forms_of_ranges() -> None:
    from_the_start = advisory([{"introduced": "0"}, {"last_affected": "1.0"}])
    assert is_affected("0.1", from_the_start) and is_affected("1.0", from_the_start)
    assert not is_affected("1.0.1", from_the_start)
    listed = advisory(versions=("1.0", "not a version"))
    assert is_affected("1.0.0", listed) and not is_affected("1.1", listed)


def test_a_vulnerable_version_and_an_unknown_package_are_reported() -> None:
    packages = {"a-b": [advisory([{"introduced": "0"}, {"fixed": "2"}])]}
    assert list(vulnerabilities([("A_b", "1.0")], packages)) == ["A_b 1.0: PYSEC-1 (CVE-1)"]
    assert list(vulnerabilities([("a.b", "2.0")], packages)) == []
    (unknown,) = vulnerabilities([("c", "1")], packages)
    assert "refresh the copy" in unknown


def test_the_copy_knows_all_pinned_packages() -> None:
    """After a change of the dependencies: `python -m tools.advisories`."""
    content = json.loads(COPY.read_text(encoding="utf-8"))
    assert sorted(content["packages"]) == names_of_project()
    assert any(content["packages"].values())


def test_an_advisory_is_copied_from_the_format_of_osv(tmp_path: Path) -> None:
    folder = tmp_path / "vulns" / "Some_Package"
    folder.mkdir(parents=True)
    events = [{"introduced": "0"}, {"fixed": "1.2"}]
    affected = {"package": {"ecosystem": "PyPI", "name": "some-package"}}
    full = {"id": "PYSEC-1", "affected": [{**affected, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]}
    (folder / "PYSEC-1.yaml").write_text(yaml.safe_dump(full))
    (folder / "PYSEC-2.yaml").write_text(yaml.safe_dump({**full, "withdrawn": "2024-01-01"}))
    found = copied(tmp_path, ["some-package", "other"])
    assert found == {"some-package": [{**advisory(events), "aliases": []}], "other": []}
    of_git = {**affected, "ranges": [{"type": "GIT", "events": events}], "versions": ["1.0"]}
    assert compact({"id": "x", "affected": [of_git]}, "some-package") == {
        "id": "x",
        "aliases": [],
        "ranges": [],
        "versions": ["1.0"],
    }


def metadata(**fields: str) -> Message:
    found = Message()
    for name, value in {"Name": "x", **fields}.items():
        found[name.replace("_", "-")] = value
    return found


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License_Expression": "MIT OR Apache-2.0"}, "MIT OR Apache-2.0"),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, "BSD-3-Clause"),
        ({"License": "Apache License\nVersion 2.0"}, "Apache-2.0"),
        ({"License": "Business Source"}, "Business Source"),
        ({}, "unknown"),
    ],
)
def test_licences_in_metadata(fields: dict[str, str], licence: str) -> None:
    assert licence_of(metadata(**fields)) == licence


def test_licences_that_are_not_allowed() -> None:
    good = {"a": "MIT", "b": "GPL-3.0 OR MIT", "c": "Apache-2.0 WITH LLVM-exception", "d": "(MIT AND ISC)"}
    assert list(licence_problems({**good, **EXCEPTIONS})) == []
    bad = {"e": "GPL-3.0-only", "f": "MIT AND GPL-3.0", "g": "unknown", "h": "LGPL-2.1-or-later"}
    assert len(list(licence_problems(bad))) == 4
