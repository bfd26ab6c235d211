"""The output of the demo: a live view on a terminal, a line at intervals elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.telemetry.demo.show import Setting
from penstock.telemetry.demo.watch import Sight
from penstock.telemetry.pipeline.names import VERDICTS

__all__ = ["line", "picture", "screen"]

_LINE_EVERY_S: Final = 5.0
#: GPU- and the first eight digits
_SUBJECT_SHOWN: Final = 12
_ACTION_SHOWN: Final = 34
_SEVERITIES: Final = {"critical": "bold red", "warning": "yellow"}


@contextmanager
def screen(setting: Setting, console: Console) -> Iterator[Callable[[Sight], None]]:
    """Yields the function that displays a state. A terminal keeps the last screen at the end."""
    printed = 0

    def new_steps(seen: Sight) -> list[str]:
        """Steps of the start that were not printed yet: each has a line of its own."""
        nonlocal printed
        found = list(seen.steps[printed:])
        printed = len(seen.steps)
        return found

    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:

            def draw(seen: Sight) -> None:
                for step in new_steps(seen):
                    live.console.print(step, highlight=False, markup=False)
                live.update(picture(seen, setting), refresh=True)

            yield draw
        return
    due_s = 0.0

    def show(seen: Sight) -> None:
        nonlocal due_s
        for step in new_steps(seen):
            print(step, flush=True)
        if seen.elapsed_s >= due_s:
            due_s = seen.elapsed_s + _LINE_EVERY_S
            print(line(seen), flush=True)

    yield show


def line(seen: Sight) -> str:
    """One line for logs and pipes."""
    up = [broker for broker in _brokers(seen) if broker["state"] == "up"]
    parts = [
        f"{seen.elapsed_s:4.0f} s",
        f"brokers {len(up)}/{len(_brokers(seen))}",
        f"produced {seen.produced:,}",
        f"read {seen.read:,}",
        f"lag {seen.lag:,}",
        f"{seen.rows_per_s:,.0f} rows/s",
        seen.step if seen.batch_id is None else f"batch {seen.batch_id} {seen.batch_s:.1f} s",
        f"dead letters {seen.rows.get('dead_lettered', 0):,}",
        f"alerts open {seen.open_alerts}",
    ]
    return "  ".join(parts + [f"newest: {_described(alert)}" for alert in seen.alerts[:1]])


def picture(seen: Sight, setting: Setting) -> Group:
    """All of it."""
    return Group(
        _heading(seen, setting),
        _addresses(setting),
        _brokers_table(seen),
        _flow_table(seen),
        # Last, because a terminal that is too low loses the end.
        _alerts_table(seen),
    )


def _heading(seen: Sight, setting: Setting) -> Text:
    minutes, seconds = divmod(int(seen.elapsed_s), 60)
    until = "" if setting.for_s is None else f" of {setting.for_s:g} s"
    return Text.assemble(
        ("penstock ", "bold"),
        f"{minutes}:{seconds:02}{until}  {setting.hosts * 8} simulated GPUs, 40 fields each, every second  ",
        ("Ctrl-C ends it", "dim"),
    )


def _brokers_table(seen: Sight) -> Table:
    table = _table("brokers", ("broker", "address", "state", "controller", "leads", "replicas", "in sync"))
    for broker in _brokers(seen):
        is_up = broker["state"] == "up"
        table.add_row(
            str(broker["broker"]),
            str(broker["address"]),
            Text(str(broker["state"]), "green" if is_up else "bold red"),
            "yes" if broker["quorum"] == "leader" else "",
            *(str(broker[name]) for name in ("leads", "replicas", "in_sync")),
        )
    lacking = len(seen.cluster["under_replicated"]) if seen.cluster else 0
    table.caption = f"{lacking} partitions under-replicated" if lacking else None
    return table


def _flow_table(seen: Sight) -> Table:
    columns = ("produced", "read", "lag", "rows/s", "batch", "batch time", "freshness")
    table = _table("samples", (*columns, "valid", "dead letters", "duplicates", "late"))
    rows = seen.rows
    is_running = seen.batch_id is not None
    table.add_row(
        f"{seen.produced:,}",
        f"{seen.read:,}",
        f"{seen.lag:,}",
        f"{seen.rows_per_s:,.0f}",
        str(seen.batch_id) if is_running else seen.step,
        f"{seen.batch_s:.1f} s" if is_running else "",
        "" if seen.freshness_s is None else f"{seen.freshness_s:.1f} s",
        *(f"{rows.get(verdict, 0):,}" for verdict in VERDICTS),
    )
    return table


def _alerts_table(seen: Sight) -> Table:
    table = _table(
        f"alerts: {seen.open_alerts} open", ("at", "rule", "state", "subject", "host", "measure", "do")
    )
    # The advice is long: without a limit, the other columns would become too narrow.
    table.columns[-1].max_width = _ACTION_SHOWN
    for alert in seen.alerts:
        style = _SEVERITIES.get(alert["severity"], "") if alert["state"] == "open" else "dim"
        table.add_row(
            alert["at"][11:19],
            Text(alert["rule"], style),
            Text(alert["state"], style),
            _short(alert["subject"]),
            alert["hostname"],
            f"{alert['measure']:.3g}",
            alert["action"] if alert["state"] == "open" else "",
        )
    return table


def _addresses(setting: Setting) -> Text:
    places = {
        "console": setting.console_url,
        "brokers": setting.bootstrap,
        "API": f"{setting.api_url}/docs",
        "pipeline's metrics": setting.metrics_url,
        "tables": str(setting.tables),
        "logs": str(setting.logs),
    }
    return Text("\n".join(f"{name + ':':20}{place}" for name, place in places.items()), style="dim")


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    return table


def _brokers(seen: Sight) -> list[Mapping[str, Any]]:
    return list(seen.cluster["brokers"]) if seen.cluster else []


def _short(subject: str) -> str:
    """The start of a GPU's uuid, which identifies it; a whole uuid leaves no room for the advice."""
    return subject if len(subject) <= _SUBJECT_SHOWN else f"{subject[:_SUBJECT_SHOWN]}…"


def _described(alert: Mapping[str, Any]) -> str:
    return f"{alert['rule']} {alert['state']} {alert['subject']} ({alert['hostname']})"
