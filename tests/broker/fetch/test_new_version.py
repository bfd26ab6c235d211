"""A new version of Fetch is served by the general pipeline until a hand-written layout has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.wire.apis.fetch import FETCH
from penstock.wire.repeated_client_fetch import ClientFetchTemplate
from penstock.wire.repeated_replica_fetch import ReplicaFetchTemplate
from penstock.wire.replica_fetch import VERSIONS

ROOT = Path(__file__).parents[3]


def outcome(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.broker.fetch.new_version", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.process
def test_a_new_version_goes_through_the_tables_until_a_layout_states_it() -> None:
    """Responses of the next version have a field more, which hand-written bytes would lack."""
    expected = [([b"first", b"second"], 7)] * 3
    assert outcome("next") == f"19 {expected} []\n"


@pytest.mark.process
def test_the_versions_of_today_have_layouts() -> None:
    expected = [([b"first", b"second"], 0)] * 3
    assert outcome() == f"18 {expected} ['ClientFetchTemplate', 'ReplicaFetchTemplate']\n"


def test_the_layouts_state_existing_versions() -> None:
    for versions in (ClientFetchTemplate.VERSIONS, ReplicaFetchTemplate.VERSIONS, VERSIONS):
        assert all(FETCH.supports(version) for version in versions)
