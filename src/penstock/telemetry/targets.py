"""Which exporters to scrape: addresses given by hand, and files in the form of Prometheus' file discovery."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from penstock.model.errors import PenstockError

__all__ = ["MalformedTargets", "Target", "read_targets", "target"]


class MalformedTargets(PenstockError):
    """An address, or a file of them, that cannot be used."""


class Target(NamedTuple):
    """One exporter; `labels` are added to its samples where it does not say better."""

    url: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def instance(self) -> str:
        """host:port, Prometheus' name for a target."""
        return urlsplit(self.url).netloc

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or self.instance


def target(address: str, labels: Iterable[tuple[str, str]] = ()) -> Target:
    """A target from a URL or from host:port."""
    url = address if "://" in address else f"http://{address}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MalformedTargets(f"{address!r} is neither HOST:PORT nor an http URL")
    if parts.path in ("", "/"):
        url = parts._replace(path="/metrics").geturl()
    return Target(url, tuple(labels))


def read_targets(path: Path) -> list[Target]:
    """The targets in a file of Prometheus' file discovery: YAML or JSON, `[{targets: […], labels: {…}}]`."""
    try:
        groups: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = [
            target(str(address), ((str(k), str(v)) for k, v in (group.get("labels") or {}).items()))
            for group in groups or ()
            for address in group["targets"]
        ]
    except OSError as error:
        raise MalformedTargets(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise MalformedTargets(f"{path}: not a list of {{targets: [...], labels: {{...}}}}") from error
    return found
