"""The processes of the demo: simulator, pipeline, API and console, their start, and the order of their end.

The simulator ends first, so that the number of produced messages is known. The pipeline then reads the rest
of them. The API only reads, and ends last.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from penstock.model.errors import PenstockError
from penstock.telemetry.demo.children import Child

__all__ = ["JVM", "PARTITIONS", "Setting", "Show", "ShowBroken"]

#: of the topic of samples: each is a task of every batch
PARTITIONS: Final = 3
_INTERVAL_S: Final = 1.0
_FAULT_PERIOD_S: Final = 120.0
#: shares of all messages; late ones come long after their window has closed
_DIRT: Final = {
    "--late": 0.001,
    "--out-of-order": 0.01,
    "--duplicates": 0.01,
    "--malformed": 0.002,
    "--sentinels": 0.002,
}
_LATENESS_S: Final = 40.0
_DELAY_S: Final = 10.0
_TRIGGER_S: Final = 2.0
#: The pipeline ends its batch and closes all windows, on a machine that may be busy.
_SIMULATOR_S, _PIPELINE_S, _API_S = 20.0, 120.0, 10.0
#: Brokers start beside the pipeline.
_TOPIC_S: Final = 120.0
#: how a step of the pipeline's start begins
_STEP: Final = re.compile(r"\d+\.\d s: ")
#: A JVM that lives for minutes and shares two cores gains nothing from its optimising compiler.
JVM: Final = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class ShowBroken(PenstockError):
    """A process has ended too early; the message has its name and its last output."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of the demo, and its files and addresses."""

    bootstrap: str
    folder: Path
    hosts: int
    seed: int
    #: seconds of samples; None has no end
    for_s: float | None
    metrics_port: int
    api_port: int
    console_port: int = 8088

    @property
    def brokers(self) -> Path:
        """The folder of the cluster."""
        return self.folder / "brokers"

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def labels(self) -> Path:
        """The simulator's ground truth."""
        return self.folder / "faults.jsonl"

    @property
    def report(self) -> Path:
        """The folder of the report, which is written at the end."""
        return self.folder / "report"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def thresholds(self) -> Path:
        return self.folder / "thresholds.yaml"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def console_url(self) -> str:
        """The page of the GPU fleet."""
        return f"http://127.0.0.1:{self.console_port}/#/fleet"


class Show:
    """The four processes. After `start_pipeline` the caller must call `stop`, also after an error."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._simulator = Child("simulator", _simulate(setting), setting.logs)
        self._pipeline = Child("pipeline", _run(setting), setting.logs)
        self._api = Child("api", _serve(setting), setting.logs)
        self._console = Child("console", _console(setting), setting.logs)

    def start_pipeline(self) -> None:
        """Start what takes longest; it waits for brokers."""
        setting = self.setting
        setting.logs.mkdir(parents=True)
        # The tables of the API exist from the beginning.
        setting.tables.mkdir()
        text = resources.files("penstock.telemetry.demo").joinpath("thresholds.yaml").read_text()
        setting.thresholds.write_text(text)
        self._pipeline.start(JVM)

    def start_simulator(self) -> None:
        """Start the parts that need brokers from the beginning."""
        self._simulator.start()

    def start_console(self) -> None:
        """Start the pages. They show the cluster at once, and GPUs as soon as the API runs."""
        self._console.start()

    def start_api(self) -> None:
        """Start what reads tables. Why not earlier: it would slow down the start of Spark."""
        self._api.start()

    @property
    def has_api(self) -> bool:
        return self._api.is_started

    @property
    def pids(self) -> list[int]:
        return [
            child.pid
            for child in (self._pipeline, self._simulator, self._api, self._console)
            if child.is_started
        ]

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of the pipeline's start so far, in its own words."""
        return tuple(f"pipeline {line}" for line in self._pipeline.log_lines() if _STEP.match(line))

    def check(self) -> None:
        """Raise ShowBroken if a process has ended; only the simulator may end, with exit code 0."""
        for child in (self._pipeline, self._api, self._console, self._simulator):
            if child.exit_code is not None and (child is not self._simulator or child.exit_code != 0):
                raise ShowBroken(
                    f"the {child.name} has ended (exit code {child.exit_code}): {child.last_words()} "
                    f"(see {child.log})"
                )

    @property
    def produced(self) -> dict[str, Any] | None:
        """The simulator's count of sent messages, once it has ended."""
        if self._simulator.exit_code != 0:
            return None
        summary: dict[str, Any] = json.loads(self._simulator.output.read_text())
        return summary

    def stop(self) -> None:
        """End all; those that have ended stay ended."""
        self._simulator.stop(signal.SIGTERM, _SIMULATOR_S)
        self._pipeline.stop(signal.SIGINT, _PIPELINE_S)
        self._console.stop(signal.SIGTERM, _API_S)
        self._api.stop(signal.SIGTERM, _API_S)


def _simulate(setting: Setting) -> list[str]:
    dirt = [f"{option}={share}" for option, share in _DIRT.items()]
    lasting = [] if setting.for_s is None else [f"--duration={setting.for_s:g}"]
    return [
        *("telemetry", "simulate", f"--bootstrap={setting.bootstrap}", f"--partitions={PARTITIONS}"),
        *(f"--hosts={setting.hosts}", f"--seed={setting.seed}", f"--interval={_INTERVAL_S:g}", *lasting),
        *(f"--labels={setting.labels}", f"--fault-period={_FAULT_PERIOD_S:g}", *dirt),
        *(f"--lateness={_LATENESS_S:g}", "--json"),
    ]


def _run(setting: Setting) -> list[str]:
    return [
        *("telemetry", "run", f"--bootstrap={setting.bootstrap}", f"--tables={setting.tables}"),
        *("--master=local[2]", f"--trigger={_TRIGGER_S:g}", f"--delay={_DELAY_S:g}", "--close-windows"),
        *(f"--thresholds={setting.thresholds}", f"--metrics-port={setting.metrics_port}"),
        f"--topic-wait={_TOPIC_S:g}",
    ]


def _serve(setting: Setting) -> list[str]:
    return [
        *("telemetry", "serve", f"--tables={setting.tables}", f"--port={setting.api_port}"),
        f"--thresholds={setting.thresholds}",
    ]


def _console(setting: Setting) -> list[str]:
    # A demo is for development: its brokers may be killed and paused, to watch a failover.
    return [
        *("console", f"--data={setting.brokers}", "--faults", f"--port={setting.console_port}"),
        f"--telemetry={setting.api_url}",
    ]
