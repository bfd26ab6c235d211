"""`penstock telemetry simulate|replay|scrape|nvml|host`: collectors, which send telemetry to a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.cli.client_config import librdkafka_settings
from penstock.cli.completion import topic_names
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.interruption import stoppable
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson, milliseconds
from penstock.cli.requirements import require_extra

if TYPE_CHECKING:
    from penstock.telemetry.outlet import TopicOutlet
    from penstock.telemetry.targets import Target

DEFAULT_TOPIC = "gpu-telemetry"
DEFAULT_HOST_TOPIC = "system-metrics"
DEFAULT_PARTITIONS = 12
Topic: TypeAlias = Annotated[
    str, typer.Option("--topic", help="Created if it does not exist.", autocompletion=topic_names)
]
Partitions: TypeAlias = Annotated[int, typer.Option("--partitions", min=1, help="Partitions of a new topic.")]
Share: TypeAlias = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of messages, 0 to 1.")]
Interval: TypeAlias = Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between rounds.")]
Rounds: TypeAlias = Annotated[
    int | None, typer.Option("--rounds", min=1, help="Number of rounds. [default: until Ctrl-C]")
]
Speed: TypeAlias = Annotated[
    float, typer.Option("--speed", min=0.0, help="Recorded seconds per second; 0: as fast as possible.")
]


@examples("penstock telemetry simulate")
@grouped
def simulate(
    hosts: Annotated[int, typer.Option("--hosts", min=1, help="Number of machines, with 8 GPUs each.")] = 8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed produces the same messages.")] = 1,
    interval: Annotated[float, typer.Option(min=0.1, help="Simulated seconds between samples.")] = 10.0,
    duration: Annotated[
        float | None, typer.Option(min=0.1, help="Simulated seconds. [default: until Ctrl-C]")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.0, help="Simulated seconds per second; 0: as fast as possible.")
    ] = 1.0,
    rate: Annotated[float | None, typer.Option(min=1.0, help="Samples/s, instead of --speed.")] = None,
    start: Annotated[str | None, typer.Option(help="Time of the first sample. [default: now]")] = None,
    labels: Annotated[Path | None, typer.Option(help="File for the faults: JSON lines.")] = None,
    faults: Annotated[
        float, typer.Option(min=0.0, max=0.05, help="Share of GPUs with faults of each class.")
    ] = 0.005,
    fault_period: Annotated[
        float, typer.Option(min=1.0, help="Seconds in which that share of GPUs gets a fault.")
    ] = 3600.0,
    late: Share = 0.0,
    lateness: Annotated[float, typer.Option(min=0.0, help="Delay of late samples in seconds.")] = 600.0,
    out_of_order: Share = 0.0,
    duplicates: Share = 0.0,
    malformed: Share = 0.0,
    sentinels: Share = 0.0,
    topic: Topic = DEFAULT_TOPIC,
    partitions: Partitions = DEFAULT_PARTITIONS,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Send the telemetry of a simulated fleet with known faults."""
    # Longer than other functions because its parameters are the options of the command.
    if late + out_of_order + duplicates + malformed + sentinels > 1:
        misused("the shares of dirty messages must not exceed 1 together")
    start_ms = time.time_ns() // 1_000_000 if start is None else milliseconds(start, "--start")
    require_extra("numpy")

    from penstock.cli.output import progress
    from penstock.telemetry.pacing import paced
    from penstock.telemetry.simulate.dirt import Shares
    from penstock.telemetry.simulate.run import Scenario, Simulation

    dirt = Shares(late, out_of_order, duplicates, malformed, sentinels)
    scenario = Scenario(
        hosts, seed, start_ms, interval, duration, faults, fault_period, dirt, late_s=lateness
    )
    with _outlet(connection, topic, partitions, "simulate", as_json) as (outlet, summary):
        simulation = Simulation(scenario, outlet, labels)
        if rate is not None:
            speed = rate * interval / simulation.samples_per_tick
        summary["describe"] = simulation.summary
        with stoppable() as stop, progress("simulated seconds", duration) as advance:
            simulation.run(paced(speed, stop), advance)


@examples("penstock telemetry replay sample:h200")
@grouped
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV of DCGM or nvidia-smi, or sample:h200.")],
    speed: Speed = 1.0,
    loop: Annotated[bool, typer.Option("--loop", help="Repeat until Ctrl-C.")] = False,
    restamp: Annotated[
        bool, typer.Option("--restamp", help="Move the time of the first sample to now.")
    ] = False,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Send only part I of N parts of the GPUs.")
    ] = "0/1",
    hostname: Annotated[str, typer.Option(help="The host, if the file has none.")] = "",
    topic: Topic = DEFAULT_TOPIC,
    partitions: Partitions = DEFAULT_PARTITIONS,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Send a recording."""
    from penstock.telemetry.pacing import paced
    from penstock.telemetry.replay import Replay, Shard
    from penstock.telemetry.samples import sample_path

    number, _, of = shard.partition("/")
    if not (number.isdigit() and of.isdigit() and int(number) < int(of)):
        misused(f"--shard {shard!r} is not I/N with I from 0 to N-1")
    path = sample_path(str(file)) or file
    if not path.is_file():
        misused(f"{file} is not a file; `sample:h200` is a recording that is included in penstock")
    now_ms = time.time_ns() // 1_000_000 if restamp else None
    with _outlet(connection, topic, partitions, "replay", as_json) as (outlet, summary):
        replay = Replay(path, outlet, Shard(int(number), int(of)), now_ms, hostname)
        summary["describe"] = lambda: {
            "sent": replay.sent,
            "elsewhere": replay.elsewhere,
            **asdict(replay.counts),
        }
        with stoppable() as stop:
            replay.run(None if loop else 1, paced(speed, stop))


@examples("penstock telemetry scrape")
@grouped
def scrape(
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="URLs or HOST:PORT.")] = None,
    targets: Annotated[
        list[Path] | None, typer.Option(help="File of targets in Prometheus' format; read every round.")
    ] = None,
    interval: Interval = 10.0,
    rounds: Rounds = None,
    target_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for a target's response.")
    ] = 5.0,
    jitter: Annotated[float, typer.Option(min=0.0, help="Seconds over which targets are spread.")] = 0.0,
    topic: Topic = DEFAULT_TOPIC,
    partitions: Partitions = DEFAULT_PARTITIONS,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Scrape dcgm-exporters at intervals, and send their metrics."""
    if not urls and not targets:
        misused("nothing to scrape: give URLs, or --targets FILE")
    if jitter + target_timeout > interval:
        misused("--jitter and --target-timeout must fit into --interval")
    require_extra("prometheus_client")

    from penstock.telemetry.scrape import Scraper
    from penstock.telemetry.targets import MalformedTargets, read_targets, target

    def current() -> list[Target]:
        found = [target(url) for url in urls or ()]
        return found + [one for path in targets or () for one in read_targets(path)]

    try:
        current()
    except MalformedTargets as error:
        misused(str(error))
    with _outlet(connection, topic, partitions, "scrape", as_json) as (outlet, summary):
        scraper = Scraper(outlet, timeout_s=target_timeout, jitter_s=jitter, on_failure=_complain)
        summary["describe"] = lambda: asdict(scraper.counts)
        with stoppable() as stop:
            _repeat(lambda: scraper.round(current()), interval, rounds, stop)


@examples("penstock telemetry nvml")
@grouped
def nvml(
    interval: Interval = 1.0,
    rounds: Rounds = None,
    hostname: Annotated[str | None, typer.Option(help="[default: this host's]")] = None,
    topic: Topic = DEFAULT_TOPIC,
    partitions: Partitions = DEFAULT_PARTITIONS,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Read the GPUs of this host at intervals, and send their metrics."""
    from penstock.telemetry.nvml import NvmlCollector, load_nvml

    library = load_nvml()
    with _outlet(connection, topic, partitions, "nvml", as_json) as (outlet, summary):
        collector = NvmlCollector(library, outlet, hostname)
        summary["describe"] = lambda: {"gpus": collector.gpus, **asdict(collector.counts)}
        with stoppable() as stop:
            _repeat(collector.round, interval, rounds, stop)


@examples("penstock telemetry host")
@grouped
def host(
    interval: Interval = 10.0,
    rounds: Rounds = None,
    hostname: Annotated[str | None, typer.Option(help="[default: this host's]")] = None,
    topic: Topic = DEFAULT_HOST_TOPIC,
    partitions: Partitions = 6,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Read processors, memory, disks and network of this host at intervals, and send the metrics."""
    from penstock.telemetry.host import HostCollector, read_host

    list(read_host())  # says what is missing before a topic is made
    with _outlet(connection, topic, partitions, "host", as_json) as (outlet, summary):
        collector = HostCollector(outlet, hostname)
        summary["describe"] = lambda: {"rounds": collector.rounds, "samples": collector.samples}
        with stoppable() as stop:
            _repeat(collector.round, interval, rounds, stop)


@contextmanager
def _outlet(
    connection: Connection, topic: str, partitions: int, source: str, as_json: bool
) -> Iterator[tuple[TopicOutlet, dict[str, Callable[[], dict[str, Any]]]]]:
    """The topic and the summary of a collector; prints the summary when all messages are stored."""
    from penstock.telemetry.keeping import KeepingWatch
    from penstock.telemetry.outlet import TopicOutlet

    cluster = connection.cluster()
    _ensure_topic(cluster, topic, partitions)
    watch = KeepingWatch(topic, _topic_configs(cluster, topic), lambda text: print(text, file=sys.stderr))
    outlet = TopicOutlet(
        connection.bootstrap,
        topic,
        source,
        timeout_s=connection.timeout,
        watch=watch,
        security=librdkafka_settings(),
    )
    summary: dict[str, Callable[[], dict[str, Any]]] = {}
    began = time.monotonic()
    yield outlet, summary
    outlet.finish()
    seconds = time.monotonic() - began
    _print_summary(
        {
            "topic": topic,
            **({} if watch.warning is None else {"warning": watch.warning}),
            **summary["describe"](),
            "acknowledged": outlet.acknowledged,
            "bytes": outlet.bytes,
            "seconds": round(seconds, 3),
            "rate": round(outlet.acknowledged / seconds, 1),
        },
        as_json,
    )


def _ensure_topic(cluster: Any, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewTopic

    from penstock.cli.outcomes import await_outcomes
    from penstock.telemetry.keeping import TOPIC_CONFIGS

    if topic not in cluster.metadata(cluster.admin).topics:
        futures = cluster.admin.create_topics(
            [NewTopic(topic, partitions, -1, config=TOPIC_CONFIGS)], request_timeout=cluster.timeout_s
        )
        await_outcomes(cluster, futures, "created", {"TOPIC_ALREADY_EXISTS": "exists"})


def _topic_configs(cluster: Any, topic: str) -> dict[str, str]:
    """The topic's configs; empty if they cannot be read."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    requested = cluster.admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=cluster.timeout_s
    )
    try:
        (answer,) = requested.values()
        return {name: entry.value for name, entry in answer.result().items() if entry.value is not None}
    except KafkaException:
        return {}


def _print_summary(summary: dict[str, Any], as_json: bool) -> None:
    from penstock.cli.output import print_json

    if as_json:
        print_json(summary)
        return
    for name, value in summary.items():
        inner = " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        print(f"{name.replace('_', ' '):14} {inner}", file=sys.stderr)


def _repeat(action: Callable[[], None], interval_s: float, rounds: int | None, stop: Event) -> None:
    """Rounds at even intervals.

    After a round that took too long the next starts at once; none is repeated.
    """
    done, due = 0, time.monotonic()
    while True:
        action()
        done += 1
        now = time.monotonic()
        due = max(due + interval_s, now)
        if done == rounds or stop.wait(due - now):
            return


def _complain(target: Target, reason: str) -> None:
    print(f"{target.instance}: {reason}", file=sys.stderr)
