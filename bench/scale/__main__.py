"""`make scale`: measure a controller at several sizes, each in a process of its own, and clusters of brokers.

The environment names the partitions of the controller (SIZES) and of the brokers (BROKERS), and a file for
the results (RESULTS, JSON) if they are not for the repository. A file keeps the results of its other sizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.scale.brokers import CLUSTERS, measure
from bench.scale.cluster import Size
from bench.scale.report import table
from bench.scale.results import RESULTS, brokers_table, keep, write_pictures
from bench.scale.tasks import run, write_snapshot
from docs import measured
from lab.home import LabError
from penstock.broker.app.server import tune_garbage_collector

_SIZES = "10000 50000 200000 1000000"
_BROKERS = "6000 50000"


def main() -> None:
    if len(sys.argv) == 4:
        _child(sys.argv[1], Size.of(int(sys.argv[2])), Path(sys.argv[3]))
        return
    path = Path(os.environ.get("RESULTS") or RESULTS)
    _controller(_numbers("SIZES", _SIZES), path)
    _brokers(_numbers("BROKERS", _BROKERS), path)
    if path == RESULTS:
        measured.write()
        write_pictures()


def _numbers(name: str, default: str) -> list[int]:
    """Sizes from the environment; `none` for none."""
    wanted = os.environ.get(name) or default
    return [] if wanted == "none" else [int(number) for number in wanted.split()]


def _controller(sizes: list[int], kept: Path) -> None:
    results: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for partitions in sizes:
            path = Path(directory, f"{partitions}.checkpoint")
            values = results[partitions] = {}
            for part in ("write", "run"):
                values |= _measured(part, partitions, path)
            path.unlink()
            keep(results, kept)
    print(table(results))


def _brokers(sizes: list[int], kept: Path) -> None:
    """Measure brokers of each kind; a kind that cannot hold so many partitions here says so."""
    for partitions in sizes:
        for kind in CLUSTERS:
            values: dict[str, float] = {}
            try:
                measure(kind, partitions, values.__setitem__)
            except (LabError, OSError, RuntimeError) as error:
                print(f"{kind} with {partitions:,} partitions: {error}", file=sys.stderr)
            if values:
                keep({partitions: values}, kept, kind)
                print(brokers_table(kept))


def _measured(part: str, partitions: int, path: Path) -> dict[str, float]:
    """The values of a child process, as far as it came."""
    values: dict[str, float] = {}
    command = [sys.executable, "-m", "bench.scale", part, str(partitions), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            name, value = json.loads(line)
            values[name] = value
            print(f"{partitions:>9,}  {name}: {value:.6g}", file=sys.stderr, flush=True)
    if child.returncode:
        print(f"{part} of {partitions:,} ended with {child.returncode}", file=sys.stderr)
    return values


def _child(part: str, size: Size, path: Path) -> None:
    tune_garbage_collector()
    if part == "write":
        for name, value in write_snapshot(size, path).items():
            _report(name, value)
    else:
        run(size, path, _report)


def _report(name: str, value: float) -> None:
    print(json.dumps([name, value]), flush=True)


main()
