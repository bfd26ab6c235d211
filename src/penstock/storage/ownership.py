"""The owner of a data directory: `meta.json` has cluster, node, and the ids of all directories of the node.

Every directory of a broker names all directories, and is used only after all other ones name it. So a start
detects a missing directory: its empty path is a disk that is not mounted, not a new directory. The partitions
that are stored there must not be created empty elsewhere.

`meta.json` has a checksum of its other fields. Files of release 0.1.0 have none and are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.ids import format_topic_id
from penstock.ports import Files, Rng
from penstock.records.checksum import crc32c

__all__ = ["DirectoryRefused", "Owner", "Siblings", "introduce", "make_durably", "node_of", "own", "survey"]

_META: Final = "meta.json"
_META_VERSION: Final = 1
_CHECKSUM: Final = "checksum"


class DirectoryRefused(PenstockError):
    """A directory that this broker must not use; the message has the remedy."""


class Owner(NamedTuple):
    """The content of a directory's `meta.json`."""

    cluster_id: str
    node_id: int
    #: 22 characters, as Kafka's tools would show it
    directory_id: str
    #: of all directories of the node, this one's included
    siblings: frozenset[str]


class Siblings(NamedTuple):
    """The directories of one broker, according to those that are present."""

    #: the cluster of the directories; None if all of them are new
    cluster_id: str | None
    #: ids of directories that the broker had and that are missing now
    lost: frozenset[str]
    #: paths without an owner: new directories, or mount points of disks that are not mounted
    unowned: frozenset[str]


def survey(files: Files, paths: Iterable[str]) -> Siblings:
    """Read the owners of all data directories before one of them is used."""
    cluster_id: str | None = None
    known: set[str] = set()
    present: set[str] = set()
    unowned = set()
    for path in paths:
        owner = _read(files, path)
        if owner is None:
            unowned.add(path)
        else:
            cluster_id = owner.cluster_id
            present.add(owner.directory_id)
            known |= owner.siblings
    return Siblings(cluster_id, frozenset(known - present), frozenset(unowned))


def introduce(files: Files, paths: Sequence[str]) -> None:
    """Write the ids of all these directories, which have owners, into each of them."""
    owners = {path: owner for path in paths if (owner := _read(files, path)) is not None}
    known = frozenset[str]().union(*(owner.siblings for owner in owners.values()))
    for path, owner in owners.items():
        if owner.siblings != known:
            try:
                _write(files, path, owner._replace(siblings=known))
            except OSError as e:
                raise DirectoryRefused(f"{path} cannot be used: {refusal(e, path)}") from e


def own(files: Files, path: str, cluster_id: str | None, node_id: int, rng: Rng) -> Owner:
    """The owner of `path`. This node becomes the owner of a new one; DirectoryRefused if another node is."""
    owner = _read(files, path)
    if owner is None:
        directory_id = format_topic_id(rng.token(16))
        owner = Owner(
            cluster_id or format_topic_id(rng.token(16)), node_id, directory_id, frozenset({directory_id})
        )
        _write(files, path, owner)
    elif (owner.cluster_id, owner.node_id) != (cluster_id or owner.cluster_id, node_id):
        raise DirectoryRefused(
            f"{path} belongs to node {owner.node_id} of cluster {owner.cluster_id}: use another path"
        )
    return owner


def node_of(files: Files, path: str) -> int:
    """The id of the node that owns the data directory `path`; DirectoryRefused if none does."""
    owner = _read(files, path)
    if owner is None:
        raise DirectoryRefused(f"{path} has no {_META}: it is not a data directory")
    return owner.node_id


def make_durably(files: Files, path: str) -> None:
    """Create a directory and its missing parents, and sync their names."""
    parent = path.rpartition("/")[0] or "/"
    if not files.exists(parent):
        make_durably(files, parent)
    files.makedirs(path)
    # A parent that this process may not read was not created by it.
    with suppress(PermissionError):
        files.sync_dir(parent)


def refusal(error: OSError, path: str) -> str:
    """Why the system refuses a directory, with the file in it, if it is about one."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename in (None, path) else f"{error.filename}: {error.strerror}"


def _read(files: Files, path: str) -> Owner | None:
    """The owner of a path; None if it has none."""
    try:
        if not files.exists(f"{path}/{_META}"):
            return None
        meta: Mapping[str, Any] = json.loads(files.read(f"{path}/{_META}"))
        version = meta["version"]
        _check(meta)
        directory_id = str(meta["directory.id"])
        owner = Owner(
            str(meta["cluster.id"]),
            meta["node.id"],
            directory_id,
            frozenset({directory_id, *meta.get("directory.ids", ())}),
        )
    except OSError as e:
        raise DirectoryRefused(f"{path} cannot be used: {refusal(e, path)}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise DirectoryRefused(
            f"{path}/{_META} is damaged ({e}): restore it from a backup. If you have edited it, remove its "
            f'"{_CHECKSUM}"'
        ) from e
    if version != _META_VERSION:
        raise DirectoryRefused(
            f"{path} has version {version}, this Penstock knows {_META_VERSION}: upgrade it"
        )
    return owner


def _check(meta: Mapping[str, Any]) -> None:
    """ValueError if the fields do not match their checksum."""
    recorded = meta.get(_CHECKSUM)
    if recorded is not None and recorded != _checksum(meta):
        raise ValueError(f"its fields have the checksum {_checksum(meta)}, and {recorded} is recorded")


def _checksum(meta: Mapping[str, Any]) -> str:
    """CRC-32C of all fields but the checksum itself, independent of their order and of white space."""
    fields = {name: value for name, value in meta.items() if name != _CHECKSUM}
    return f"{crc32c(json.dumps(fields, sort_keys=True).encode()):08x}"


def _write(files: Files, path: str, owner: Owner) -> None:
    meta: dict[str, Any] = {
        "version": _META_VERSION,
        "cluster.id": owner.cluster_id,
        "node.id": owner.node_id,
        "directory.id": owner.directory_id,
        "directory.ids": sorted(owner.siblings),
    }
    meta[_CHECKSUM] = _checksum(meta)
    files.write_atomic(f"{path}/{_META}", json.dumps(meta, indent=2).encode())
