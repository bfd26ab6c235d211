"""Writes the files of a sealed segment once more, in the format that files have now.

The content stays the same, so that sizes, seals, digests and manifests stay right. The copy is made in the
directory of compaction and replaces the segment in the same way (`swap`): a crash leaves the old files or the
new ones.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.ports import Files
from penstock.storage.segment_files import LOG, SNAPSHOT, SUFFIXES, file_name
from penstock.storage.swap import CLEANED, write_manifest

__all__ = ["copy_segment", "outdated_segments"]

_CHUNK_BYTES: Final = 1 << 20
#: A snapshot belongs to an offset, not to the segment that begins there: it may be replaced at any time.
_COPIED: Final = tuple(suffix for suffix in SUFFIXES if suffix != SNAPSHOT)


def outdated_segments(files: Files, log_path: str, base_offsets: list[int]) -> list[int]:
    """The segments whose file has an older format, which takes no appends."""
    return [base for base in base_offsets if not files.takes_appends(f"{log_path}/{file_name(base)}{LOG}")]


def copy_segment(files: Files, log_path: str, base_offset: int, size: int) -> None:
    """Copy the first `size` bytes of a segment and the files beside it, durably, for a swap.

    Runs in a worker. The caller holds the lock of rewrites of the log.
    """
    directory = f"{log_path}/{CLEANED}"
    if files.is_dir(directory):
        files.rmtree(directory)
    files.makedirs(directory)
    name = file_name(base_offset)
    _copy(files, f"{log_path}/{name}{LOG}", f"{directory}/{name}{LOG}", size)
    for suffix in _COPIED:
        if suffix != LOG:
            with suppress(FileNotFoundError):
                path = f"{log_path}/{name}{suffix}"
                _copy(files, path, f"{directory}/{name}{suffix}", files.size(path))
    write_manifest(files, directory, [base_offset])


def _copy(files: Files, path: str, new_path: str, size: int) -> None:
    old = files.open(path)
    try:
        new = files.open(new_path, create=True)
        try:
            for position in range(0, size, _CHUNK_BYTES):
                count = min(_CHUNK_BYTES, size - position)
                piece = old.pread(count, position)
                if len(piece) != count:
                    raise OSError(f"{path} is shorter than {size} bytes")
                new.append(piece)
            new.sync()
        finally:
            new.close()
    finally:
        old.close()
