"""Files that only their owner can read, and checks of files and arguments that have secrets."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.cli.failure import misused

__all__ = [
    "is_open_to_others",
    "is_secret",
    "refuse_secret_arguments",
    "refuse_secret_options",
    "secret_files",
    "secret_names",
    "warn_if_exposed",
    "write_private",
]

_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
#: sensitive for Kafka, but public in fact
_PUBLIC: Final = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")
_FILE: Final = re.compile(r"\$\{file:([^}:]+)(?::[^}]+)?\}")
_PLACEHOLDER: Final = re.compile(r"\$\{(?:file|env):[^}]+\}")
#: the options of a login module that are no secret; any other one may be
_PUBLIC_OPTION: Final = re.compile(
    r"username|clientId|scope|extension_.*|unsecuredLogin.*|.*\.(?:location|type)"
)

#: names of secrets among the options of object stores; a name of a file is none
_SECRET_OPTION: Final = re.compile(
    r".*(?:secret|password|token|access_?key|account_?key|sas_?key|master_?key)(?!.*(?:_id|_file|_path)$).*",
    re.IGNORECASE,
)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; a reader sees the old content or the new one."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def is_secret(name: str) -> bool:
    """Whether the value of a broker config must not be shown."""
    from penstock.model.config import is_sensitive

    return is_sensitive(name)


def secret_names(configs: Mapping[str, str]) -> list[str]:
    """The configs whose value is a secret in itself, not a reference to one."""
    return [
        name
        for name, value in configs.items()
        if is_secret(name) and value and not name.endswith(_PUBLIC) and _has_secret(name, value)
    ]


def _has_secret(name: str, value: str) -> bool:
    """Returns true if a part of the value may be a secret, and is no placeholder."""
    if _is_placeholder(value):
        return False
    if name.endswith("sasl.jaas.config"):
        return _jaas_has_secret(value)
    if name == "penstock.otlp.headers":
        # `Bearer ${env:TOKEN}` has its secret in the placeholder.
        return any(_PLACEHOLDER.search(header) is None for header in value.split(",") if header.strip())
    return True


def _is_placeholder(value: str) -> bool:
    return not _PLACEHOLDER.sub("", value).strip()


def _jaas_has_secret(text: str) -> bool:
    from penstock.model.errors import InvalidConfig
    from penstock.security.sasl_users import parse_jaas

    try:
        options = parse_jaas(text)
    except InvalidConfig:
        return True
    return any(
        value and not _is_placeholder(value)
        for name, value in options.items()
        if _PUBLIC_OPTION.fullmatch(name) is None
    )


def refuse_secret_arguments(configs: Mapping[str, str]) -> None:
    """End the command if a config of the command line is a secret in itself."""
    _refuse(secret_names(configs))


def refuse_secret_options(options: Mapping[str, str]) -> None:
    """End the command if an option of an object store is a secret in itself."""
    _refuse(
        [
            name
            for name, value in options.items()
            if value and _SECRET_OPTION.fullmatch(name) and not _is_placeholder(value)
        ]
    )


def _refuse(names: Sequence[str]) -> None:
    if names:
        misused(
            f"{', '.join(names)}: `ps` and the shell's history show the arguments of a command: write the "
            f"secret to a file that only you can read, and set {names[0]}='${{file:PATH}}', or use "
            f"'${{env:NAME}}'"
        )


def secret_files(configs: Mapping[str, str]) -> list[str]:
    """The files that configs refer to for secrets: `${file:PATH}`, tokens, keys of the audit log.

    Brokers check the key stores of their listeners themselves.
    """
    found: dict[str, None] = {}
    for name, value in configs.items():
        found.update(dict.fromkeys(_FILE.findall(value)))
        if name.endswith("sasl.oauthbearer.token.endpoint.url") and value.startswith("file:"):
            found[unquote(urlsplit(value).path)] = None
        if value and name.startswith("penstock.") and name.endswith((".keystore.location", ".key.file")):
            found[value] = None
    return list(found)


def warn_if_exposed(path: Path, option: str, strict: bool = False) -> None:
    """Warn of a file with secrets that other users can read; end the command instead if `strict`."""
    from penstock.broker.base.secret_files import exposure_of

    exposure = exposure_of(path)
    if exposure is None:
        return
    if strict:
        misused(f"{option} {path}: {exposure}")
    print(f"warning: {option} {path}: {exposure}", file=sys.stderr)


def is_open_to_others(path: Path) -> bool:
    """Whether users other than the owner can read a file; false if it does not exist."""
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:
        return False
