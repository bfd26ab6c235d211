"""`penstock telemetry demo`: runs brokers, simulated GPUs, the Spark pipeline and the API together."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.interruption import stoppable
from penstock.cli.requirements import require_extra, require_java

if TYPE_CHECKING:
    from penstock.cli.cluster.broker_home import BrokerHome
    from penstock.telemetry.demo.outcome import Outcome
    from penstock.telemetry.demo.show import Setting, Show
    from penstock.telemetry.demo.watchman import Watchman

__all__ = ["demo"]

_HOST: Final = "127.0.0.1"
_BROKERS_S: Final = 60.0
_BROKERS_END_S: Final = 20.0
_LOOK_S: Final = 1.0
_CLUSTER_ANSWER_S: Final = 1.0
#: how long the pipeline may take to read the rest after the simulator has ended; on a busy machine it may not
#: have started by then
_DRAIN_S: Final = 240.0


@examples("penstock telemetry demo")
def demo(
    for_s: Annotated[
        float | None,
        typer.Option("--for", min=10.0, help="Seconds of samples; then a summary. [default: until Ctrl-C]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", "-d", help="A new folder for all files. [default: a temporary one]"),
    ] = None,
    hosts: Annotated[int, typer.Option(min=1, max=64, help="Simulated machines of 8 GPUs.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fleet and its faults.")] = 59,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of the cluster.")] = 3,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the page of the GPU fleet in a browser. [default: on a terminal with a display]",
        ),
    ] = None,
) -> None:
    """Run a live demo: brokers, simulated GPUs, the pipeline on Spark, and the API."""
    # Longer than other functions because its parameters are the options of the command.
    require_java()
    for module in ("pyspark", "deltalake"):
        require_extra(module, "spark,telemetry")
    folder = _folder(data)

    from penstock.cli.opening import can_open, open_when_ready
    from penstock.cli.telemetry.panels import monitored
    from penstock.telemetry.demo.show import Setting, Show
    from penstock.telemetry.demo.watchman import watching

    began_s = time.monotonic()
    with (
        stoppable() as stop,
        watching() as watchman,
        _homes(folder / "brokers", brokers) as homes,
    ):
        metrics_port, api_port, console_port = _free_ports()
        bootstrap = ",".join(home.address for home in homes)
        show = Show(Setting(bootstrap, folder, hosts, seed, for_s, metrics_port, api_port, console_port))
        try:
            print(f"console {show.setting.console_url}", flush=True)
            print(f"starting {brokers} brokers and, beside them, Spark", flush=True)
            show.start_pipeline()
            watchman.watch(*show.pids)
            _start_brokers(homes, watchman)
            print(f"brokers are up after {time.monotonic() - began_s:.1f} s", flush=True)
            show.start_simulator()
            show.start_console()
            watchman.watch(*show.pids)
            if open_page if open_page is not None else can_open():
                open_when_ready(show.setting.console_url)
            with monitored(folder / "monitoring", homes) as panels:
                watchman.watch(*panels.pids)
                _watch(show, stop, watchman)
                print(f"{'panels:':14}{panels.summary()}")
        finally:
            show.stop()
    outcome = _outcome(show)
    if outcome is None:
        raise Failure("the demo ended before anything was sent")
    _print_outcome(outcome, show.setting)
    _write_report(show.setting)
    if not (outcome.is_complete or stop.is_set()):
        raise Failure("not all produced messages are accounted for")


def _folder(data: Path | None) -> Path:
    if data is None:
        return Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        misused(f"{data} is not empty: choose a new folder with --data")
    data.mkdir(parents=True, exist_ok=True)
    return data.absolute()


def _free_ports() -> tuple[int, int, int]:
    from penstock.cli.cluster.listening import free_port

    taken: set[int] = set()
    return free_port(_HOST, 0, taken), free_port(_HOST, 8080, taken), free_port(_HOST, 8088, taken)


@contextmanager
def _homes(folder: Path, brokers: int) -> Iterator[list[BrokerHome]]:
    """The homes of a temporary cluster; at the end its brokers are stopped, and its data is deleted."""
    from penstock.cli.cluster.plan import ClusterPlan, make_homes
    from penstock.cli.cluster.processes import wait_for_end
    from penstock.model.config import DeclaredTopic
    from penstock.telemetry.demo.show import PARTITIONS
    from penstock.telemetry.message import TOPIC

    topic = DeclaredTopic(TOPIC, PARTITIONS, -1, {})
    homes = make_homes(folder, ClusterPlan(brokers, _HOST, 0, topics=[topic]))
    try:
        yield homes
    finally:
        for number, patience_s in ((signal.SIGTERM, _BROKERS_END_S), (signal.SIGKILL, _BROKERS_END_S)):
            wait_for_end([p for home in homes if (p := home.signal(number)) is not None], patience_s)
        shutil.rmtree(folder, ignore_errors=True)


def _start_brokers(homes: list[BrokerHome], watchman: Watchman) -> None:
    from penstock.cli.cluster.starting import start_all

    def watch(home: BrokerHome) -> None:
        if (process := home.process()) is not None:
            watchman.watch(process.pid)

    start_all(homes, _BROKERS_S, together=True, started=watch)


def _watch(show: Show, stop: Event, watchman: Watchman) -> None:
    """Wait for Ctrl-C, or until the simulator has ended and everything was read, or the time is over."""
    from rich.console import Console

    from penstock.cli.direct import DirectLine
    from penstock.telemetry.demo.view import screen
    from penstock.telemetry.demo.watch import Watcher

    with DirectLine(show.setting.bootstrap, _CLUSTER_ANSWER_S) as line:
        watcher = Watcher(show.setting, _overview(line))
        ended_s: float | None = None
        try:
            with screen(show.setting, Console()) as see:
                while not stop.wait(_LOOK_S):
                    show.check()
                    seen = replace(watcher.look(), steps=show.steps)
                    see(seen)
                    if seen.batch_id is not None and not show.has_api:
                        show.start_api()
                        watchman.watch(*show.pids)
                    produced = show.produced
                    if produced is None:
                        continue
                    ended_s = time.monotonic() if ended_s is None else ended_s
                    if seen.read >= produced["acknowledged"] or time.monotonic() - ended_s > _DRAIN_S:
                        return
        finally:
            watcher.close()


def _overview(line: Any) -> Callable[[], Mapping[str, Any] | None]:
    from penstock.cli.cluster.overview import cluster_overview

    def overview() -> Mapping[str, Any] | None:
        try:
            return cluster_overview(line)
        except Failure:
            return None

    return overview


def _outcome(show: Show) -> Outcome | None:
    """The outcome; None if the simulator has not reported its counts."""
    from penstock.telemetry.demo.outcome import read_outcome

    produced = show.produced
    if produced is None:
        return None
    return read_outcome(produced, str(show.setting.tables), show.setting.labels)


def _print_outcome(outcome: Outcome, setting: Setting) -> None:
    from penstock.cli.output import print_table

    parts = [f"{number:,} {verdict.replace('_', '-')}" for verdict, number in outcome.rows.items()]
    if outcome.unread:
        parts.append(f"{outcome.unread:,} not read yet")
    print(f"\n{outcome.produced:,} produced = {' + '.join(parts)}")
    print(f"{outcome.stored:,} rows in the table of samples")
    rows = [
        [name, *map(str, score), _share(score.recall), _share(score.precision)]
        for name, score in outcome.scores.items()
    ]
    print("\nAlerts against the simulator's ground truth (faults that stand out of the noise):")
    print_table(["fault", "found", "of faults", "right", "of alerts", "recall", "precision"], rows)
    places = {"tables": setting.tables, "ground truth": setting.labels, "logs": setting.logs}
    for name, place in places.items():
        print(f"{name + ':':14}{place}")


def _write_report(setting: Setting) -> None:
    from penstock.telemetry.queries.reader import TableReader
    from penstock.telemetry.report import write_report
    from penstock.telemetry.thresholds import load_thresholds

    thresholds = load_thresholds(setting.thresholds.read_text())
    made = write_report(TableReader(str(setting.tables)), setting.report, thresholds=thresholds)
    print(f"{'plots:':14}{made.files[0] if made.files else made.summary}")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
