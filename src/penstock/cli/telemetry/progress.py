"""The output of `penstock telemetry run`: a live table on a terminal, a line per batch elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from penstock.telemetry.pipeline.progress import Progress

__all__ = ["batch_line", "shown", "table"]


@contextmanager
def shown(
    progress: Progress, console: Console | None = None
) -> Iterator[tuple[Callable[[Any], None], Callable[[], None]]]:
    """A function for the report of each batch, and one to call at intervals."""
    console = console or Console()
    if not console.is_terminal:
        yield lambda report: print(batch_line(report, progress), flush=True), lambda: None
        return
    with Live(table(progress), console=console, auto_refresh=False) as live:
        yield lambda report: None, lambda: live.update(table(progress), refresh=True)


def table(progress: Progress) -> Table:
    totals = progress.totals

    def measured(text: str) -> str:
        return "-" if progress.batch_id is None else text

    shown = {
        "batch": "waiting for the first" if progress.batch_id is None else str(progress.batch_id),
        "batch time": measured(f"{progress.batch_s:.1f} s"),
        "read": f"{progress.consumed:,}",
        "rows/s": measured(f"{progress.rows_per_s:,.0f}"),
        "lag": measured(f"{progress.lag:,}"),
        "freshness": "-" if progress.freshness_s is None else f"{progress.freshness_s:.1f} s",
        "valid": f"{totals['valid']:,}",
        "dead letters": f"{totals['dead_lettered']:,}",
        "duplicates": f"{totals['duplicates']:,}",
        "late": f"{totals['late']:,}",
        "alerts opened": f"{progress.opened:,}",
    }
    made = Table(title="telemetry pipeline, Ctrl-C ends it", title_justify="left", show_header=False)
    made.add_column()
    made.add_column(justify="right")
    for name, value in shown.items():
        made.add_row(name, value)
    return made


def batch_line(report: Any, progress: Progress) -> str:
    counts = report.counts
    return (
        f"batch {report.batch_id}: {counts.consumed} read, {counts.valid} valid, "
        f"{counts.dead_lettered} dead-lettered, {counts.duplicates} duplicates, {counts.late} late, "
        f"{len(report.alerts)} alerts; {progress.consumed} read so far"
    )
