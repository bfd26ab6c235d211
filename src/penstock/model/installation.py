"""The name of the distribution, and how to install what it needs or what one of its extras adds.

The distribution is not named after its package: `penstock` on the package index is another project. Programs
that use only the clients may have another distribution, with the same files but for the rest (ADR 136).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

__all__ = ["CLIENT_EXTRAS", "DISTRIBUTION", "not_installed", "pip_install"]

DISTRIBUTION: Final = "penstock-mq"
#: the extras that the distribution of the clients has, too
CLIENT_EXTRAS: Final = ("avro", "protobuf", "otel")
#: what the distribution of the clients does not have
_OF_BROKERS: Final = "penstock.cli"


def pip_install(extra: str) -> str:
    """The command that installs an extra, as error messages show it."""
    alone = extra in CLIENT_EXTRAS and find_spec(_OF_BROKERS) is None
    return f"pip install '{DISTRIBUTION}{'-client' if alone else ''}[{extra}]'"


def not_installed(error: ModuleNotFoundError) -> str:
    """The message of a command in an environment that has the packages of the clients alone, or fewer."""
    return f"the package {error.name} is missing: commands and brokers need `pip install {DISTRIBUTION}`"
