"""`penstock version`."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import run


@pytest.mark.process
def test_version() -> None:
    done = run("version", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout).keys() == {"penstock", "python", "librdkafka"}
