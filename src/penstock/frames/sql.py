"""SQL over topics: each topic of the cluster that a query names is a table of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from penstock.frames.duck import TopicDataset
from penstock.frames.opening import open_ranges
from penstock.frames.scanning import Scan, Structure, whole_schema
from penstock.reading.connection import Cluster, Endpoint
from penstock.reading.errors import ReadingError, WrongOption
from penstock.reading.planning import OffsetRange
from penstock.registry.settings import RegistrySettings

__all__ = ["QueryFailed", "Result", "run_query"]


class QueryFailed(ReadingError):
    """DuckDB refuses the query, or could not finish it."""


class Result:
    """The rows of a query, read as they are taken, once."""

    def __init__(self, reader: Any, tables: Sequence[TopicDataset]) -> None:
        self._reader = reader
        self._tables = tables

    @property
    def columns(self) -> list[str]:
        names: list[str] = self._reader.schema.names
        return names

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Raises what reading a topic raises, and QueryFailed for errors of DuckDB."""
        while True:
            with _explained(self._tables):
                batch = next(self._reader, None)
            if batch is None:
                return
            yield from batch.to_pylist()


def run_query(
    query: str,
    endpoint: Endpoint,
    *,
    text: bool = True,
    committed: bool = True,
    registry: RegistrySettings | None = None,
) -> Result | None:
    """The result of a query; None if it has none. Each topic is read up to its end of now.

    With a registry, values are structures: those of the latest schema of the topic's name and "-value".
    """

    def scan_of(topic: str) -> Scan:
        structure = None if registry is None else Structure.of(topic, registry)
        kind = None if structure is None else structure.kind
        names = whole_schema(headers=True, text=text, structure=kind).names
        return Scan(endpoint, names, committed=committed, text=text, structure=structure)

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    scans = {topic: scan_of(topic) for topic in _named(_topics(endpoint), query)}
    tables = {topic: TopicDataset(scan, _ranges_of(scan, topic)) for topic, scan in scans.items()}
    for topic, table in tables.items():
        connection.register(topic, table)
    with _explained([*tables.values()]):
        found = connection.sql(query)
        return None if found is None else Result(found.to_arrow_reader(), [*tables.values()])


@contextmanager
def _explained(tables: Sequence[TopicDataset]) -> Iterator[None]:
    """Turn errors of DuckDB and Arrow into those of the topic that was read, or into QueryFailed."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as e:
        for table in tables:
            if table.failure is not None:
                raise table.failure from e
        raise QueryFailed(str(e).strip().partition("\n")[0]) from e


def _topics(endpoint: Endpoint) -> list[str]:
    cluster = Cluster(endpoint)
    try:
        return [each.name for each in cluster.refresh(None).topics if each.name and not each.is_internal]
    finally:
        cluster.close()


def _named(topics: Sequence[str], query: str) -> list[str]:
    """The topics whose name appears in the query, wherever: a table that it does not use costs nothing."""
    named = [topic for topic in topics if topic.lower() in query.lower()]
    by_table: dict[str, str] = {}
    for topic in named:
        other = by_table.setdefault(topic.lower(), topic)
        if other != topic:
            raise WrongOption(
                f"tables cannot differ by case alone, as {other} and {topic} do: read one in Python"
            )
    return named


def _ranges_of(scan: Scan, topic: str) -> Any:
    ranges: list[list[OffsetRange]] = []

    def resolved() -> list[OffsetRange]:
        # A query that reads a topic twice sees the same rows.
        if not ranges:
            ranges.append(open_ranges(scan, topic, "earliest", "latest"))
        return ranges[0]

    return resolved
