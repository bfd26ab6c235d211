"""The place of a file: what its key is bound to, so that no other file can be put there.

A place is a text. It stays the same when storage renames files and folders, and it differs for any two files
that must not be exchanged:

    TOPIC-ID/PARTITION/NAME                    a file of a partition, wherever its folder is
    cluster/CLUSTER-ID/NODE/NAME               a file of the metadata log: it is that of one node
    directory/DIRECTORY-ID/FOLDER/NAME         any other file of a data directory
    NAME                                       `meta.json`, `partition.metadata`, `topic.metadata`

The files of the last row say what the other places are, and storage compares their content with the path and
with the cluster's metadata. The topic id and partition of a folder are those in its `partition.metadata`. If
that was lost, they are the id in the `topic.metadata` above it and the number in the folder's name.

Names lose the suffixes that storage adds when it sets a file aside or prepares one. The directories of a swap
belong to their partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from penstock.encryption import META
from penstock.model.ids import METADATA_TOPIC_ID, format_topic_id

__all__ = ["PARTITION_METADATA", "PLACE_BYTES_MAX", "TOPIC_METADATA", "Places", "is_partition_folder"]

PARTITION_METADATA: Final = "partition.metadata"
TOPIC_METADATA: Final = "topic.metadata"
PLACE_BYTES_MAX: Final = 296
_UNBOUND: Final = frozenset({META, PARTITION_METADATA, TOPIC_METADATA})
#: the directories in which storage prepares files of a partition
_SWAPS: Final = frozenset({"cleaned", "swap"})
_SUFFIXES: Final = re.compile(
    r"(\.deleted|\.misplaced|\.unreadable(\.\d+)?|\.cut\.\d+|\.part|\.tmp|\.encryption)+$"
)
_FOLDER: Final = re.compile(r"partition-(0|[1-9][0-9]{0,9})")
_FIELD: Final = re.compile(rb"^(topic_id|partition): (\S+)$", re.MULTILINE)
_METADATA_TOPIC: Final = format_topic_id(METADATA_TOPIC_ID)
#: stands for the id of a directory without a readable `meta.json`
_NO_OWNER: Final = ("", "", "")


class _Folder(NamedTuple):
    """The partition that a folder belongs to."""

    topic_id: str
    partition: str


class Places:
    """Finds the places of files. Remembers the partitions of folders and the owners of directories."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        """`read` returns the content of a file, in plain text; OSError if there is none."""
        self._read = read
        self._folders: dict[str, _Folder] = {}
        #: path of a data directory -> ids of the directory and the cluster, and the node
        self._owners: dict[str, tuple[str, str, str]] = {}

    def of(self, path: str) -> bytes:
        """The place of the file at `path`."""
        folder, _, name = path.rpartition("/")
        name = _SUFFIXES.sub("", name)
        if name in _UNBOUND:
            return name.encode()
        parent, _, last = folder.rpartition("/")
        if last in _SWAPS:
            folder = parent
        found = self._folders.get(folder) or self._resolved(folder)
        if found is None:
            root, owner = self._owner(folder)
            inner = folder.removeprefix(root).strip("/")
            return _bounded(f"directory/{owner[0]}/{inner}/{name}")
        if found.topic_id == _METADATA_TOPIC:
            _, (_, cluster_id, node_id) = self._owner(folder)
            return _bounded(f"cluster/{cluster_id}/{node_id}/{name}")
        return _bounded(f"{found.topic_id}/{found.partition}/{name}")

    def forget(self, path: str) -> None:
        """Forget the identity of a folder, because it or a file in it changes."""
        if self._folders.pop(path, None) is None:
            below = f"{path}/"
            for known in [folder for folder in self._folders if folder.startswith(below)]:
                del self._folders[known]
        self._owners.pop(path, None)

    def is_known(self, folder: str) -> bool:
        """Returns true if a partition's folder says which partition it belongs to."""
        return self._resolved(folder) is not None

    def _resolved(self, folder: str) -> _Folder | None:
        fields = self._fields(f"{folder}/{PARTITION_METADATA}")
        if "topic_id" in fields and "partition" in fields:
            found = self._folders[folder] = _Folder(fields["topic_id"], fields["partition"])
            return found
        parent, _, name = folder.rpartition("/")
        match = _FOLDER.fullmatch(name)
        topic_id = self._fields(f"{parent}/{TOPIC_METADATA}").get("topic_id") if match else None
        return None if match is None or topic_id is None else _Folder(topic_id, match[1])

    def _fields(self, path: str) -> dict[str, str]:
        try:
            data = self._read(path)
        except OSError:
            return {}
        return {name.decode(): value.decode("ascii", "replace") for name, value in _FIELD.findall(data)}

    def _owner(self, folder: str) -> tuple[str, tuple[str, str, str]]:
        """The data directory above a folder and its owner; the folder itself if there is none."""
        root = folder
        while root:
            known = self._owners.get(root) or self._read_owner(root)
            if known is not None:
                return root, known
            root = root.rpartition("/")[0]
        return folder, _NO_OWNER

    def _read_owner(self, root: str) -> tuple[str, str, str] | None:
        try:
            meta = json.loads(self._read(f"{root}/{META}"))
            found = str(meta["directory.id"]), str(meta["cluster.id"]), str(meta["node.id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        self._owners[root] = found
        return found


def is_partition_folder(path: str) -> bool:
    """Returns true if a path has the name of a partition's folder."""
    return _FOLDER.fullmatch(path.rpartition("/")[2]) is not None


def _bounded(place: str) -> bytes:
    """A place that fits into the header of a file."""
    data = place.encode("utf-8", "surrogateescape")
    return data if len(data) <= PLACE_BYTES_MAX else b"sha256/" + sha256(data).hexdigest().encode()
