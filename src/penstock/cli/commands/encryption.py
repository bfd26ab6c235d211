"""`penstock encryption new-key|apply|rotate|remove|status`: encryption of data directories."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.data_files import encrypted_files
from penstock.cli.failure import Failure
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.encryption.directory_keys import KeyProvider
    from penstock.encryption.files import EncryptedFiles

app = typer.Typer(help="Encrypt the data directories of a stopped broker.", no_args_is_help=True)

Directories = Annotated[
    list[Path],
    typer.Argument(metavar="DIR", help="A data directory, or one with data directories below it."),
]


@app.command("new-key")
@examples("penstock encryption new-key keys.json")
def new_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file with the keys; created if missing.")],
    name: Annotated[str, typer.Option("--name", help="Name of the key. [default: today's date]")] = "",
) -> None:
    """Add a new key, which encrypts from now on. Only the owner can read the file."""
    from penstock.cli.private_files import write_private
    from penstock.encryption.keys import KEY_BYTES, format_key, parse_keys

    old = file.read_text(encoding="utf-8") if file.exists() else ""
    name = name or datetime.now(UTC).strftime("%Y-%m-%d")
    text = f"{format_key(name, secrets.token_bytes(KEY_BYTES))}\n{old}"
    # A second key of the name would hide the first, and with it the data.
    parse_keys(text)
    write_private(file, text)
    print(f"added the key {name} to {file}: keep a copy elsewhere, without it the data is lost")


@app.command()
@examples("penstock --encryption-keys keys.json encryption apply penstock-data")
def apply(directories: Directories, as_json: AsJson = False) -> None:
    """Encrypt directories with the first key, or convert them to the current version.

    The broker must be stopped. Repeat it if it is interrupted.
    """
    from penstock.encryption.conversion import encrypt_directory

    _convert(encrypt_directory, directories, "encrypted", as_json)


@app.command()
@examples("penstock --encryption-keys keys.json encryption rotate penstock-data")
def rotate(directories: Directories, as_json: AsJson = False) -> None:
    """Let the first key open all files, and no other one any more; the broker must be stopped.

    With the key provider vault-transit or aws-kms, each directory gets a new key, which the newest version of
    the provider's key wraps.
    """
    from penstock.encryption.conversion import rotate_directory

    provider = _provider()
    for path in _data_directories(directories) if provider is not None else ():
        _add_key(provider, path)
    _convert(rotate_directory, directories, "rotated", as_json)
    for path in _data_directories(directories) if provider is not None else ():
        _keep_newest(provider, path)


def _provider() -> KeyProvider | None:
    from penstock.broker.base.key_providers import key_provider
    from penstock.cli.data_files import encryption_config

    config = encryption_config()
    return None if config is None else key_provider(config)


def _add_key(provider: KeyProvider | None, path: Path) -> None:
    from penstock.broker.base.system_ports import OsFiles
    from penstock.encryption.directory_keys import add_key

    assert provider is not None
    add_key(OsFiles(), str(path), provider, secrets.token_bytes)


def _keep_newest(provider: KeyProvider | None, path: Path) -> None:
    from penstock.broker.base.system_ports import OsFiles
    from penstock.encryption.directory_keys import keep_newest

    assert provider is not None
    keep_newest(OsFiles(), str(path), provider)


@app.command()
@examples("penstock --encryption-keys keys.json encryption remove penstock-data")
def remove(directories: Directories, as_json: AsJson = False) -> None:
    """Decrypt directories; the broker must be stopped. Repeat it if it is interrupted."""
    from penstock.encryption.conversion import decrypt_directory

    _convert(decrypt_directory, directories, "decrypted", as_json)


@app.command()
@examples("penstock encryption status penstock-data")
def status(directories: Directories, as_json: AsJson = False) -> None:
    """Show how many files have which version and key; needs no key. Version 0 is plain text."""
    from penstock.broker.base.system_ports import OsFiles
    from penstock.cli.output import print_rows
    from penstock.encryption.directory import NOT_ENCRYPTED, file_states

    rows = [
        {
            "directory": str(path),
            "version": version,
            "key": name if name != NOT_ENCRYPTED else None,
            "files": count,
        }
        for path in _data_directories(directories)
        for (version, name), count in sorted(file_states(OsFiles(), str(path)).items())
    ]
    print_rows(rows, as_json=as_json, columns=("directory", "version", "key", "files"), empty="no files")


def _convert(
    convert: Callable[[EncryptedFiles, str, Callable[[str, str], None]], int],
    directories: list[Path],
    outcome: str,
    as_json: bool,
) -> None:
    from penstock.cli.outcomes import print_report

    done = {}
    for path in _data_directories(directories):
        # Each directory has its own keys, if a provider wraps them.
        done[str(path)] = convert(encrypted_files(path), str(path), _keep_time)
    document = [{"directory": path, "files": count, "outcome": outcome} for path, count in done.items()]
    print_report(document, [f"{outcome} {count} files in {path}" for path, count in done.items()], as_json)


def _keep_time(old: str, new: str) -> None:
    """Keep the time of a file: retention of records without timestamps goes by it."""
    status = os.stat(old)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def _data_directories(directories: list[Path]) -> list[Path]:
    from penstock.encryption import META

    found: list[Path] = []
    for directory in directories:
        metas = [directory / META] if (directory / META).exists() else directory.glob(f"**/{META}")
        below = [meta.parent for meta in metas]
        if not below:
            raise Failure(f"{directory} contains no data directory")
        found += sorted(path.absolute() for path in below)
    return found
