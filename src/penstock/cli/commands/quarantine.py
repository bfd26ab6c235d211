"""`penstock log quarantine list|restore|delete`: logs that a broker quarantined instead of deleting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.cli.data_files import data_files
from penstock.cli.failure import Failure
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson
from penstock.cli.output import print_rows

if TYPE_CHECKING:
    from penstock.storage.quarantine import Quarantine, QuarantineEntry

app = typer.Typer(help="List, restore or delete quarantined logs.", no_args_is_help=True)

Data: TypeAlias = Annotated[
    Path, typer.Option("--data", "-d", help="A data directory, or a folder that contains data directories.")
]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="ENTRY", help="An entry's name, as `list` shows it.")]


@app.command("list")
@examples("penstock log quarantine list --data penstock-data")
def list_entries(data: Data, as_json: AsJson = False) -> None:
    """List quarantined logs, with time and reason; the broker may run."""
    quarantines = _quarantines(data)
    rows = [_row(quarantine, entry) for quarantine in quarantines for entry in quarantine.entries()]
    columns = ("entry", "topic", "partitions", "bytes", "since", "reason", "path")
    print_rows(rows, as_json=as_json, columns=columns, empty="the quarantine is empty")
    for quarantine in quarantines:
        for name in quarantine.damaged:
            print(_damaged(quarantine, name), file=sys.stderr)


@app.command()
@examples("penstock log quarantine restore t-1.1 --data penstock-data")
def restore(
    name: Name,
    data: Data,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Quarantine the existing log in its place, and take its topic id."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a log to its topic; the broker must be stopped."""
    from penstock.broker.base.system_ports import SystemClock
    from penstock.model.ids import TopicPartition, format_topic_id, parse_topic_id
    from penstock.storage.folders import PartitionFolders
    from penstock.storage.manifest import forget_shutdown
    from penstock.storage.offset_checkpoints import protect_restored

    quarantine, entry = _find(data, name)
    path = quarantine.path.rpartition("/")[0]
    files = data_files(Path(path))
    folders = PartitionFolders(files, path, quarantine, SystemClock())
    with _stopped(path):
        if name in quarantine.damaged:
            raise Failure(_damaged(quarantine, name))
        partitions = quarantine.held(entry)
        places = [(partition, folders.partition_path(entry.topic, partition)) for partition in partitions]
        taken = [partition for partition, place in places if files.exists(place)]
        if taken and not replace:
            place = folders.partition_path(entry.topic, taken[0])
            raise Failure(f"{place} is in use: --replace quarantines it, too")
        topic_id = parse_topic_id(entry.topic_id)
        if taken:
            # A topic that was created again has another id: the broker would set the log aside again.
            replaced = folders.quarantine(entry.topic, taken, f"{name} was restored in its place")
            topic_id = parse_topic_id(replaced.topic_id)
        folders.keep_topic(entry.topic, topic_id)
        # Before the move: a follower that restarts with the log must know that all of it counts as committed.
        keys = [TopicPartition(entry.topic, partition) for partition in partitions]
        protect_restored(files, path, keys, format_topic_id(topic_id))
        forget_shutdown(files, path, keys)
        quarantine.move_back(entry, places)
        for partition in partitions:
            folders.identify(entry.topic, partition, topic_id)
            if unsynced := folders.unsynced_identity(entry.topic, partition):
                unsynced.sync()
    _say(as_json, entry, "restored", [place for _, place in places])


@app.command()
@examples("penstock log quarantine delete t-1.1 --data penstock-data")
def delete(name: Name, data: Data, as_json: AsJson = False) -> None:
    """Delete a quarantined log; the broker may run."""
    quarantine, entry = _find(data, name)
    quarantine.delete(name)
    _say(as_json, entry, "deleted", [quarantine.entry_path(name)])


def _row(quarantine: Quarantine, entry: QuarantineEntry) -> dict[str, Any]:
    fields = asdict(entry)
    since = datetime.fromtimestamp(entry.when_ms / 1000, UTC)
    return {
        "entry": fields.pop("name"),
        "bytes": fields.pop("size"),
        **fields,
        "since": since.isoformat(timespec="seconds"),
        "path": quarantine.entry_path(entry.name),
    }


def _quarantines(data: Path) -> list[Quarantine]:
    """The quarantines of the data directory at `data`, or of those below it."""
    from penstock.storage.quarantine import Quarantine

    if not data.is_dir():
        raise Failure(f"{data} is not a directory: name a data directory with --data")
    found = [data] if (data / "meta.json").exists() else sorted(p.parent for p in data.glob("**/meta.json"))
    if not found:
        raise Failure(f"{data} contains no data directory: name one with --data")
    files = data_files(*found)
    return [Quarantine(files, str(path.absolute())) for path in found]


def _find(data: Path, name: str) -> tuple[Quarantine, QuarantineEntry]:
    quarantines = _quarantines(data)
    found = [(q, entry) for q in quarantines for entry in q.entries() if entry.name == name]
    for quarantine in quarantines if not found else ():
        if name in quarantine.damaged:
            raise Failure(_damaged(quarantine, name))
    if not found:
        raise Failure(f"{data} has no quarantine entry {name!r}: `penstock log quarantine list` shows them")
    if len(found) > 1:
        paths = " and ".join(quarantine.path for quarantine, _ in found)
        raise Failure(f"{name} is in {paths}: name one data directory with --data")
    return found[0]


def _damaged(quarantine: Quarantine, name: str) -> str:
    path = quarantine.entry_path(name)
    return (
        f"{path}/quarantine.json is missing, damaged, or does not list the folders in {path}/data: correct "
        f"it and remove its line crc32c, or delete {path}"
    )


@contextmanager
def _stopped(path: str) -> Iterator[None]:
    """Hold the data directory's lock, so that no broker can start."""
    from penstock.broker.base.system_ports import OsFiles

    try:
        lock = OsFiles().lock(f"{path}/lock")
    except BlockingIOError as e:
        raise Failure(f"{path} is in use by a broker: stop it first") from e
    try:
        yield
    finally:
        lock.close()


def _say(as_json: bool, entry: QuarantineEntry, outcome: str, paths: list[str]) -> None:
    from penstock.cli.outcomes import print_report

    document = {"entry": entry.name, "topic": entry.topic, "outcome": outcome, "paths": paths}
    print_report(document, [f"{outcome} {path}" for path in paths], as_json)
