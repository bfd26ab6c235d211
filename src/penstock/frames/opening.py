"""Makes frames: where they start and end is resolved once, when the frame is made."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from penstock.frames.frame import Frame
from penstock.frames.scanning import Scan, Structure, whole_schema
from penstock.model.addresses import parse_bootstrap
from penstock.model.ids import TopicPartition
from penstock.reading.connection import Cluster, Endpoint, security_of
from penstock.reading.errors import WrongOption
from penstock.reading.offsets import EARLIEST, LATEST, Offsets, Position, list_offsets, resolve
from penstock.reading.planning import OffsetRange, ranges_between
from penstock.reading.selection import Selection, selected
from penstock.registry.settings import registry_settings

__all__ = ["Where", "endpoint_of", "open_ranges", "read"]

#: "earliest", "latest", a time, an offset of all partitions, or an offset by partition
Where: TypeAlias = Literal["earliest", "latest"] | datetime | int | Mapping[int, int]
_DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EDGES: Final = {"earliest": EARLIEST, "latest": LATEST}


def read(
    topic: str,
    *,
    start: Where = "earliest",
    end: Where = "latest",
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    text: bool = False,
    registry: str | None = None,
    registry_config: Mapping[str, str] | None = None,
    subject: str | None = None,
    bootstrap: str | None = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    fail_on_data_loss: bool = True,
    timeout: float = 60.0,
    config: Mapping[str, str] | None = None,
) -> Frame:
    """The records of a topic from `start` up to `end`, as a frame that can be read more than once.

    `start` and `end` are "earliest", "latest", a `datetime` with a time zone, an offset, or an offset by
    partition. As with slices, offsets outside of the log mean its start and its end. Columns are `key`,
    `value`, `topic`, `partition`, `offset`, `timestamp` and `timestampType`, and `headers` if `columns` has
    it. With `text`, keys and values are strings. With the address of a schema `registry`, values are
    structures with the columns of the latest schema of `subject` (the topic's name and "-value" by default),
    and `malformed` has the bytes of those that do not fit. `bootstrap` is PENSTOCK_BOOTSTRAP or
    127.0.0.1:9092 by default; `config` has settings for TLS and SASL.

    Raises WrongOption for what cannot be, DataLost in the middle of reading if retention was faster.
    """
    if isolation not in ("read_committed", "read_uncommitted"):
        raise WrongOption(f"isolation must be read_committed or read_uncommitted, not {isolation!r}")
    structure = None
    if registry is not None:
        structure = Structure.of(topic, registry_settings(registry_config or {}, registry), subject)
    elif registry_config is not None or subject is not None:
        raise WrongOption("registry_config and subject need registry: the address of the schema registry")
    scan = Scan(
        endpoint_of(bootstrap, config, timeout),
        _checked(columns, text, structure),
        committed=isolation == "read_committed",
        fail_on_data_loss=fail_on_data_loss,
        text=text,
        structure=structure,
    )
    return Frame(scan, open_ranges(scan, topic, start, end, partitions))


def endpoint_of(bootstrap: str | None, config: Mapping[str, str] | None, timeout_s: float) -> Endpoint:
    """How the cluster is reached; WrongOption for a malformed address, InvalidConfig for wrong security."""
    text = bootstrap or os.environ.get("PENSTOCK_BOOTSTRAP") or _DEFAULT_BOOTSTRAP
    try:
        addresses = tuple(parse_bootstrap(text))
    except ValueError as e:
        raise WrongOption(f"bootstrap: {e}") from e
    return Endpoint(
        addresses,
        client_id="penstock-frames",
        request_timeout_s=min(30.0, timeout_s),
        total_timeout_s=timeout_s,
        security=security_of(config or {}),
    )


def open_ranges(
    scan: Scan, topic: str, start: Where, end: Where, partitions: Sequence[int] | None = None
) -> list[OffsetRange]:
    """The ranges from `start` to `end` of the partitions, as of now."""
    first, last = _position("start", start), _position("end", end)
    cluster = Cluster(scan.endpoint)
    try:
        found = selected(cluster, Selection(topics=(topic,)))
        if partitions is not None:
            found = [TopicPartition(topic, number) for number in sorted(set(partitions))]
            found = selected(cluster, Selection(partitions=tuple(found)))
        log_start = list_offsets(cluster, dict.fromkeys(found, EARLIEST), committed=scan.committed)
        starts = _resolved(cluster, first, found, scan)
        ends = _resolved(cluster, last, found, scan)
        log_end = list_offsets(cluster, dict.fromkeys(found, LATEST), committed=scan.committed)
    finally:
        cluster.close()
    return ranges_between(
        {each: max(at, log_start[each]) for each, at in starts.items()},
        {each: min(at, log_end[each]) for each, at in ends.items()},
    )


def _resolved(
    cluster: Cluster, where: Position | Mapping[int, int], found: list[TopicPartition], scan: Scan
) -> Offsets:
    """The offsets of a position. Of offsets by partition, only the partitions that are read count."""
    if isinstance(where, Position):
        return resolve(cluster, where, found, committed=scan.committed)
    missing = [each.partition for each in found if each.partition not in where]
    if missing:
        raise WrongOption(f"offsets by partition must name every partition that is read, also {missing[0]}")
    return {each: where[each.partition] for each in found}


def _position(edge: str, where: Where) -> Position | Mapping[int, int]:
    if isinstance(where, str) and where in _EDGES:
        return Position(_EDGES[where])
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise WrongOption(f"{edge}={where.isoformat()} has no time zone: pass datetime(…, tzinfo=UTC)")
        # Records have whole milliseconds: the first one that is not before the time.
        return Position(timestamp_ms=-((_EPOCH - where) // timedelta(milliseconds=1)))
    if isinstance(where, int) and not isinstance(where, bool) and where >= 0:
        return _Everywhere(where)
    if isinstance(where, Mapping) and all(_is_offset(at) for pair in where.items() for at in pair):
        return where
    raise WrongOption(f'{edge} must be "earliest", "latest", a datetime, or offsets from 0 on, not {where!r}')


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _Everywhere(dict[int, int]):
    """One offset for all partitions."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset

    def __contains__(self, partition: object) -> bool:
        return True

    def __missing__(self, partition: int) -> int:
        return self._offset


def _checked(columns: Sequence[str] | None, text: bool, structure: Structure | None) -> list[str]:
    kind = None if structure is None else structure.kind
    names = whole_schema(headers=True, text=text, structure=kind).names
    if columns is None:
        return [name for name in names if name != "headers"]
    unknown = [name for name in columns if name not in names]
    if unknown or not columns or len(set(columns)) < len(columns):
        named = f"not {unknown[0]!r}" if unknown else "each at most once"
        raise WrongOption(f"columns must be some of {', '.join(names)}, {named}")
    return list(columns)
