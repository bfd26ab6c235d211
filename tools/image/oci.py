"""Writes an image in the OCI format: layers, a config, a manifest, an index, in one archive.

The same entries give the same bytes: members are sorted, have fixed times, and are owned by root. The archive
also has the `manifest.json` of `docker save`, which older versions of Docker read.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.image.entries import Entry

__all__ = ["Layer", "layer", "write_archive"]

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_TIME: Final = 0


class Layer(NamedTuple):
    """A compressed layer."""

    data: bytes
    #: of the layer before its compression
    diff_id: str
    note: str

    @property
    def digest(self) -> str:
        return _digest(self.data)


def layer(entries: Iterable[Entry], note: str) -> Layer:
    """A layer with the entries, sorted by path. Missing parent folders are made."""
    named: dict[str, Entry] = {}
    for entry in entries:
        named[entry.path] = entry
    for path in list(named):
        for parent in list(Path(path).parents)[:-1]:
            named.setdefault(str(parent), Entry(str(parent), 0o755, is_directory=True))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(named):
            _add(tar, named[path])
    plain = raw.getvalue()
    return Layer(gzip.compress(plain, 6, mtime=_TIME), _digest(plain), note)


def write_archive(
    target: Path, layers: Sequence[Layer], config: Mapping[str, Any], names: Sequence[str]
) -> str:
    """Write the archive; returns the digest of the manifest. `names` are those of the image, with tags."""
    document = {
        **config,
        "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
        "history": [{"created": config["created"], "created_by": each.note} for each in layers],
    }
    blobs = {each.digest: each.data for each in layers}
    settings = _json(document)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _reference(_CONFIG, settings),
            "layers": [_reference(_LAYER, each.data) for each in layers],
        }
    )
    blobs |= {_digest(each): each for each in (settings, manifest)}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [_named(manifest, n) for n in names]}
    for_docker = [
        {
            "Config": _blob(_digest(settings)),
            "RepoTags": list(names),
            "Layers": [_blob(each.digest) for each in layers],
        }
    ]
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json(for_docker),
        **{_blob(digest): data for digest, data in blobs.items()},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            _add(tar, Entry(path, 0o644, content=files[path]))
    return _digest(manifest)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode, info.mtime, info.uid, info.gid = entry.mode, _TIME, entry.owner, entry.owner
    if entry.is_directory:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif entry.target:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
        tar.addfile(info)
    else:
        data = entry.read()
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))


def _named(manifest: bytes, name: str) -> dict[str, Any]:
    annotations = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    return {**_reference(_MANIFEST, manifest), "annotations": annotations}


def _reference(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
