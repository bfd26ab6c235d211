"""The commands and requests on the page about the API run, on the small fleet's tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from fastapi.testclient import TestClient

from tests.cli.running import run_here
from tests.docs.walkthrough import blocks

PAGE: Final = "docs/telemetry-api.md"
_UUID: Final = re.compile(r"GPU-[0-9a-f-]{36}")


def lines(program: str) -> list[str]:
    """The lines of the page's blocks that run a program."""
    found = [line for block in blocks(PAGE, "sh") for line in block.code.splitlines()]
    return [line for line in found if line.startswith(f"{program} ")]


def test_every_line_is_run_by_a_test() -> None:
    everything = [line for block in blocks(PAGE, "sh") for line in block.code.splitlines() if line]
    assert sorted(everything) == sorted([*lines("curl"), *lines("penstock")])


@pytest.mark.parametrize("line", lines("curl"))
def test_a_request_is_answered(client: TestClient, line: str) -> None:
    known = client.get("/api/v1/gpus").json()["items"][0]["gpu_id"]
    _, url = shlex.split(line)
    address, _, path = url.partition("/")
    assert address == "localhost:8080"
    answer = client.get(f"/{_UUID.sub(known, path)}")
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("line", [line for line in lines("penstock") if " serve " not in line])
def test_a_command_runs(tables: Path, tmp_path: Path, line: str) -> None:
    """`serve` runs until a signal: test_server has it."""
    words = shlex.split(line)[1:]
    places = {"./tables": str(tables), "./report": str(tmp_path / "report")}
    arguments = [places.get(word, word) for word in words]
    assert run_here(*arguments) == 0
