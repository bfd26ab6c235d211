"""The distribution has another name than its package: `penstock` on the package index is another project."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from penstock.model.installation import DISTRIBUTION, pip_install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: the other project: by name, or with an extra
_WRONG = re.compile(
    r"pip install[^\n]* '?penstock(?![-\w./])|\bpenstock\[(?:" + "|".join(EXTRAS) + r")\b", re.IGNORECASE
)


def _wrong(text: str) -> list[str]:
    return [match[0] for match in _WRONG.finditer(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install penstock", True),
        ("pip install --upgrade penstock\n", True),
        ("pip install 'penstock[security]'", True),
        ("`penstock[spark,telemetry]`", True),
        ("pip install 'penstock-mq[security]'", False),
        ("pip install penstock-mq", False),
        ("penstock[1]: a line of syslog", False),
    ],
)
def test_wrong_names_are_found(text: str, found: bool) -> None:
    assert bool(_wrong(text)) is found


@pytest.mark.process
def test_no_file_names_the_other_project() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    texts = {path: path.read_bytes() for path in paths if path != Path(__file__) and path.is_file()}
    found = {
        str(path): wrong for path, text in texts.items() if (wrong := _wrong(text.decode("utf-8", "replace")))
    }
    assert not found
    assert len(texts) > 1000


def test_messages_name_the_distribution_and_its_extras() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert pip_install("security") == "pip install 'penstock-mq[security]'"


def test_all_names_every_extra_of_users() -> None:
    (everything,) = EXTRAS["all"]
    named = re.fullmatch(rf"{DISTRIBUTION}\[(.+)\]", everything)
    assert named is not None
    assert sorted(named[1].split(",")) == sorted(EXTRAS.keys() - {"all", "dev"})


def test_the_metadata_names_the_tested_versions_of_python() -> None:
    prefix = "Programming Language :: Python :: "
    versions = {
        each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix + "3.")
    }
    assert {"3.11", "3.12", "3.13"} <= versions
    assert PROJECT["keywords"]
    assert PROJECT["authors"]


def test_the_metadata_names_no_address_that_is_not_ours() -> None:
    """The project has no public address: CONTRIBUTING.md says what to do when it has one."""
    assert "urls" not in PROJECT
    assert [sorted(author) for author in PROJECT["authors"]] == [["name"]]
