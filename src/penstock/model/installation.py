"""The name of the distribution, and how to install what it needs or what one of its extras adds.

The distribution is not named after its package: `penstock` on the package index is another project.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DISTRIBUTION", "not_installed", "pip_install"]

DISTRIBUTION: Final = "penstock-mq"


def pip_install(extra: str) -> str:
    """The command that installs an extra, as error messages show it."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def not_installed(error: ModuleNotFoundError) -> str:
    """The message of a command in an environment that has the packages of the clients alone, or fewer."""
    return f"the package {error.name} is missing: commands and brokers need `pip install {DISTRIBUTION}`"
