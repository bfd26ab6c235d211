"""Files of tables and beside them: in a directory, or in an object store by its URL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

__all__ = ["Store", "file_system"]

#: deltalake's names, all that it has for each, and Arrow's
_S3_OPTIONS: Final = {
    **dict.fromkeys(("access_key_id", "aws_access_key_id"), "access_key"),
    **dict.fromkeys(("secret_access_key", "aws_secret_access_key"), "secret_key"),
    **dict.fromkeys(("token", "session_token", "aws_token", "aws_session_token"), "session_token"),
    **dict.fromkeys(("default_region", "aws_default_region", "region", "aws_region"), "region"),
    **dict.fromkeys(("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"), "endpoint_override"),
}


def file_system(uri: str, options: dict[str, str] | None = None) -> tuple[Any, str]:
    """Where files are, and the place in there. `options` are as of `Store`."""
    if "://" not in uri:
        return fs.LocalFileSystem(), uri
    given = {name.lower(): value for name, value in (options or {}).items()}
    settings = {ours: given[name] for name, ours in _S3_OPTIONS.items() if name in given}
    if not settings or not uri.startswith("s3://"):
        files, place = fs.FileSystem.from_uri(uri)
        return files, place
    scheme, separator, endpoint = settings.get("endpoint_override", "").partition("://")
    if separator:
        settings |= {"scheme": scheme, "endpoint_override": endpoint}
    return fs.S3FileSystem(**settings), uri.removeprefix("s3://")


class Store:
    """Files below one place. One that is there is whole: it is written under another name first."""

    __slots__ = ("_files", "_options", "_root", "uri")

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        """`options` are deltalake's options for S3; other stores use environment variables."""
        self.uri = uri.rstrip("/")
        self._options = options
        self._files, place = file_system(self.uri, options)
        self._root = f"{place}/"

    def __reduce__(self) -> tuple[type[Store], tuple[str, dict[str, str] | None]]:
        # Workers open their own connection.
        return Store, (self.uri, self._options)

    def exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(self._path(path)).type == fs.FileType.File)

    def read(self, path: str) -> bytes:
        with self._files.open_input_stream(self._path(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        with self._whole(path) as stream:
            stream.write(data)

    def read_table(self, path: str) -> Any:
        with self._files.open_input_file(self._path(path)) as source:
            return pa.ipc.open_file(source).read_all()

    def write_table(self, path: str, table: Any) -> None:
        with self._whole(path) as stream, pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)

    def read_batches(self, path: str, numbers: Iterable[int]) -> list[Any]:
        """Some of the record batches of a file, by their place in it."""
        with self._files.open_input_file(self._path(path)) as source:
            opened = pa.ipc.open_file(source)
            return [opened.get_batch(number) for number in numbers]

    def write_batches(self, path: str, batches: Sequence[Any]) -> None:
        """Write record batches of one schema, at least one."""
        with self._whole(path) as stream, pa.ipc.new_file(stream, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def write_parquet(self, path: str, table: Any) -> int:
        """Write a file of a table, and say how many bytes it has."""
        # Numbers hardly repeat, and looking whether they do costs more than all else. Without our schema in
        # it, a file's texts are read as texts, however they were held here.
        texts = [each.name for each in table.schema if pa.types.is_dictionary(each.type)]
        with self._whole(path) as stream:
            pq.write_table(
                table,
                stream,
                compression="zstd",
                compression_level=1,
                use_dictionary=texts,
                store_schema=False,
            )
        return int(self._files.get_file_info(self._path(path)).size)

    def read_parquet(self, path: str) -> Any:
        """All rows of a file of a table."""
        with self._files.open_input_file(self._path(path)) as source:
            return pq.ParquetFile(source).read()

    def names(self, path: str) -> list[str]:
        """The names of the files and folders in a folder; none where there is no such folder."""
        found = self._files.get_file_info(fs.FileSelector(self._path(path), allow_not_found=True))
        return sorted(str(each.base_name) for each in found)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        place = self._path(path)
        if self._files.get_file_info(place).type == fs.FileType.Directory:
            self._delete_folder(place)
        else:
            self._files.delete_file(place)

    def _delete_folder(self, place: str) -> None:
        """Delete a folder; OSError if a try leaves as much as there was.

        Why tries: Arrow deletes the objects of a store in any order. A store over a file system refuses to
        delete an object that stands for a folder before those that are in it.
        """
        left = self._count(place)
        while True:
            try:
                self._files.delete_dir(place)
            except OSError:
                before, left = left, self._count(place)
                if left >= before:
                    raise
            else:
                return

    def _count(self, place: str) -> int:
        return len(self._files.get_file_info(fs.FileSelector(place, recursive=True, allow_not_found=True)))

    def _path(self, path: str) -> str:
        return f"{self._root}{path}"

    def _whole(self, path: str) -> _WholeFile:
        return _WholeFile(self._files, self._path(path))


class _WholeFile:
    """A file that gets its name when it is complete; a failed one leaves nothing that is looked at."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path
        folder, slash, name = path.rpartition("/")
        # Readers of a folder pass over names that start so.
        self._draft = f"{folder}{slash}_{name}.{uuid4().hex}"
        if folder:
            files.create_dir(folder, recursive=True)

    def __enter__(self) -> Any:
        self._stream = self._files.open_output_stream(self._draft)
        return self._stream

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stream.close()
        if kind is None:
            self._files.move(self._draft, self._path)
        else:
            self._files.delete_file(self._draft)
