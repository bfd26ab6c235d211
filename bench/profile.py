"""`ROW=… python -m bench.profile`: a flame graph of the broker while the row's load runs against it.

py-spy samples from outside, so the broker is the one that is measured; idle time is left out, and frames of C
extensions are in. A row that starts brokers of its own leaves one graph for each of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from bench import load
from bench.rows import ROWS
from bench.table import Contender, Row
from lab import LabError
from lab.cluster import Cluster, Way, direct, penstock_cluster
from lab.penstock import penstock
from lab.server import Server
from tools.arguments import Arguments

FOLDER = Path(__file__).resolve().parent.parent / "build" / "profile"
SAMPLES_PER_SECOND = "250"


class Sampled(Server):
    """A broker that is sampled from when it is ready until it is stopped."""

    __slots__ = ("graph", "sampler")

    graph: Path
    sampler: subprocess.Popen[bytes] | None

    def start(self) -> float:
        seconds = Server.start(self)
        self.sample()
        return seconds

    def sample(self) -> None:
        sampler = Path(sys.executable).with_name("py-spy")
        options = ("--rate", SAMPLES_PER_SECOND, "--nonblocking", "--duration", "unlimited")
        self.sampler = subprocess.Popen(
            [sampler, "record", *options, "--pid", str(self.pid), "--output", self.graph],
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self.sampler is not None:
            # It writes the graph when it is interrupted, or when the broker has gone.
            self.sampler.send_signal(signal.SIGINT)
            self.sampler.wait()
            self.sampler = None
        Server.stop(self)


class SampledCluster(Cluster):
    """As `Sampled`, each broker for itself."""

    __slots__ = ()

    def start(self) -> float:
        seconds = Cluster.start(self)
        for broker in self.brokers:
            assert isinstance(broker, Sampled)
            broker.sample()
        return seconds


def profile(row: Row) -> list[Path]:
    """Run the row once; the graphs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    graphs: list[Path] = []
    numbers = count(1)

    def sampled(plain: Server) -> Server:
        server = Sampled(plain.name, plain.port, plain.command, plain.log)
        server.graph = FOLDER / f"{row.name}-{next(numbers)}.svg"
        server.sampler = None
        graphs.append(server.graph)
        return server

    def one(folder: Path, settings: Mapping[str, str]) -> Server:
        return sampled(penstock(folder, settings))

    def several(folder: Path, settings: Mapping[str, str], brokers: int = 3, way: Way = direct) -> Cluster:
        plain = penstock_cluster(folder, settings, brokers, way)
        return SampledCluster([sampled(broker) for broker in plain.brokers])

    with tempfile.TemporaryDirectory(prefix="penstock-profile-") as folder:
        shared = one(Path(folder), {}) if row.brokers == 1 else penstock(Path(folder), {})
        contender = Contender("penstock", shared, one, several)
        try:
            if row.brokers == 1:
                shared.start()
            row.measure(contender, 1.0)
        finally:
            shared.stop()
    return graphs


def main() -> int:
    Arguments(prog="python -m bench.profile", description=__doc__).parse_args()
    wanted = os.environ.get("ROW", "")
    rows = {row.name: row for row in ROWS}
    if wanted not in rows:
        print(f"profile: no row {wanted!r}; ROW= one of {', '.join(rows)}")
        return 2
    try:
        load.compiled()
        for graph in profile(rows[wanted]):
            print(graph)
    except LabError as error:
        print(f"profile: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
