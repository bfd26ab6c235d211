"""Whose a data directory is: `meta.json` names its cluster, its node, itself, and the node's others.

Every directory of a broker names all of them, and is used only after the others name it. So a start that
finds one missing knows it: an empty path then is a disk that is not mounted, not a new one, and what was
stored there must not come up empty elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.ids import format_topic_id
from penstock.ports import Files, Rng

__all__ = ["DirectoryRefused", "Owner", "Siblings", "introduce", "make_durably", "node_of", "own", "survey"]

_META: Final = "meta.json"
_META_VERSION: Final = 1


class DirectoryRefused(PenstockError):
    """A directory that this broker must not use; the message says what to do about it."""


class Owner(NamedTuple):
    """What a directory says about itself."""

    cluster_id: str
    node_id: int
    #: 22 characters, as Kafka's tools would show it
    directory_id: str
    #: of all directories of the node, this one's included
    siblings: frozenset[str]


class Siblings(NamedTuple):
    """The directories of one broker, as far as those that are there can tell."""

    #: of the cluster that they belong to; None where all of them are new
    cluster_id: str | None
    #: ids of directories that the broker has had and that are nowhere now
    lost: frozenset[str]
    #: paths that nobody owns: new ones, or ones that a disk should be mounted on
    unowned: frozenset[str]


def survey(files: Files, paths: Iterable[str]) -> Siblings:
    """Look at all data directories before any of them is used."""
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
    """Have each of these directories, all owned, name all the others."""
    owners = {path: owner for path in paths if (owner := _read(files, path)) is not None}
    known = frozenset[str]().union(*(owner.siblings for owner in owners.values()))
    for path, owner in owners.items():
        if owner.siblings != known:
            try:
                _write(files, path, owner._replace(siblings=known))
            except OSError as e:
                raise DirectoryRefused(f"{path} cannot be used: {e}") from e


def own(files: Files, path: str, cluster_id: str | None, node_id: int, rng: Rng) -> Owner:
    """Who owns `path`: this node, from now on if it was nobody's; DirectoryRefused if it is another's."""
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
        raise DirectoryRefused(f"{path} has no {_META}: it is no data directory")
    return owner.node_id


def make_durably(files: Files, path: str) -> None:
    """Make a directory and what is missing above it: names, too, are lost unless they are synced."""
    parent = path.rpartition("/")[0] or "/"
    if not files.exists(parent):
        make_durably(files, parent)
    files.makedirs(path)
    # A parent that we may not even read has not got its names from us.
    with suppress(PermissionError):
        files.sync_dir(parent)


def _read(files: Files, path: str) -> Owner | None:
    """None where nobody owns the path."""
    try:
        if not files.exists(f"{path}/{_META}"):
            return None
        meta: Mapping[str, Any] = json.loads(files.read(f"{path}/{_META}"))
        version = meta["version"]
        directory_id = str(meta["directory.id"])
        owner = Owner(
            str(meta["cluster.id"]),
            meta["node.id"],
            directory_id,
            frozenset({directory_id, *meta.get("directory.ids", ())}),
        )
    except OSError as e:
        raise DirectoryRefused(f"{path} cannot be used: {e}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise DirectoryRefused(f"{path}/{_META} is damaged ({e}): restore it from a backup") from e
    if version != _META_VERSION:
        raise DirectoryRefused(
            f"{path} has version {version}, this Penstock knows {_META_VERSION}: upgrade it"
        )
    return owner


def _write(files: Files, path: str, owner: Owner) -> None:
    meta = {
        "version": _META_VERSION,
        "cluster.id": owner.cluster_id,
        "node.id": owner.node_id,
        "directory.id": owner.directory_id,
        "directory.ids": sorted(owner.siblings),
    }
    files.write_atomic(f"{path}/{_META}", json.dumps(meta, indent=2).encode())
