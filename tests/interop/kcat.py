"""What the installed kcat can do: tests that need more are skipped with the reason.

A distribution may have built kcat without JSON, and against a librdkafka that is years old.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from typing import Final, NamedTuple

import pytest

__all__ = ["JSON", "SCRAM", "Build", "lacks", "needs_kcat", "parse_build", "require_kcat"]

JSON: Final = "JSON"
SCRAM: Final = "sasl_scram"
#: Earlier ones repeat the client's nonce after that of the server, which RFC 5802 (section 5.1) forbids.
_SCRAM_SINCE: Final = (2, 6, 1)


class Build(NamedTuple):
    """How kcat was built: the version of its librdkafka, and the features of both."""

    librdkafka: tuple[int, ...]
    features: frozenset[str]


def parse_build(text: str) -> Build:
    """The build out of the output of `kcat -V`."""
    found = re.search(r"\((.*)librdkafka (\d+(?:\.\d+)*)\S* builtin\.features=(\S*)\)", text)
    if found is None:
        return Build((), frozenset())
    own = (name.strip() for name in found[1].split(","))
    features = frozenset(name for name in (*own, *found[3].split(",")) if name)
    return Build(tuple(map(int, found[2].split("."))), features)


def lacks(build: Build, features: tuple[str, ...]) -> str:
    """The first feature that a build cannot offer, with the reason; empty if it has all."""
    for feature in features:
        if feature not in build.features:
            return f"kcat was built without {feature}"
        if feature == SCRAM and build.librdkafka < _SCRAM_SINCE:
            return f"the librdkafka {'.'.join(map(str, build.librdkafka))} of kcat repeats its nonce in SCRAM"
    return ""


def needs_kcat(*features: str) -> pytest.MarkDecorator:
    reason = _reason(features)
    return pytest.mark.skipif(bool(reason), reason=reason)


def require_kcat(*features: str) -> None:
    """Skip the test that runs if kcat cannot do it."""
    if reason := _reason(features):
        pytest.skip(reason)


def _reason(features: tuple[str, ...]) -> str:
    build = _installed()
    return "kcat is not installed" if build is None else lacks(build, features)


@cache
def _installed() -> Build | None:
    if shutil.which("kcat") is None:
        return None
    done = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=60, check=True)
    return parse_build(done.stdout + done.stderr)
