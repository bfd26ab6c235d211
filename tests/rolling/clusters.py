"""Clusters of real processes, started and rolled with the command line of a version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.cli.cluster.broker_home import homes_in
from penstock.cli.cluster.processes import program_of
from penstock.cli.cluster.starting import stop_again

__all__ = ["THIS", "check", "cluster", "penstock", "programs", "roll"]

THIS: Final = Path(sys.prefix)
_CONFIGS: Final = ("offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3")


def penstock(version: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(version / "bin" / "python"), "-P", "-m", "penstock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


def check(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def cluster(version: Path, data: Path) -> Iterator[str]:
    """Three brokers in three zones, started by a version; their addresses."""
    settings = [word for each in _CONFIGS for word in ("--set", each)]
    how = ("--brokers", "3", "--port", "0", "--racks", "a,b,c", "--timeout", "120")
    try:
        check(penstock(version, "cluster", "start", "--data", str(data), *how, *settings))
        yield ",".join(home.address for home in homes_in(data))
    finally:
        stop_again(homes_in(data))


def programs(data: Path) -> set[str]:
    """The interpreters that the brokers run with."""
    running = [home.process() for home in homes_in(data)]
    assert None not in running
    return {program_of(process) or "" for process in running if process is not None}


def roll(version: Path, data: Path) -> str:
    words = ("cluster", "roll", "--data", str(data), "--upgrade-to", str(version), "--timeout", "150")
    output = check(penstock(THIS, *words))
    assert programs(data) == {str(version / "bin" / "python")}
    return output
