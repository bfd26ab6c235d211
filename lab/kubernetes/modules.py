"""Go modules from which programs of Kubernetes can be built outside of its repository. Without I/O.

`k8s.io/kubernetes` replaces its libraries by folders of its repository. A module of our own requires it, and
replaces each of them by the published version of the same release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["kubernetes_module", "plain_module", "version_flags"]

_STAGED: Final = re.compile(r"^\s*(?:replace\s+)?(?P<module>\S+) => \./staging/\S+$", re.MULTILINE)
_LANGUAGE: Final = re.compile(r"^go \S+$", re.MULTILINE)
_DEBUG: Final = re.compile(r"^godebug (?:\(.*?^\)|[^(\n]+$)", re.MULTILINE | re.DOTALL)
#: examples that are published, but that no program needs
_SAMPLES: Final = "sample-"


def kubernetes_module(published: str, version: str) -> str:
    """The `go.mod` of a module that requires Kubernetes; `published` is Kubernetes' own."""
    language, debug = _LANGUAGE.search(published), _DEBUG.search(published)
    staged = sorted({match["module"] for match in _STAGED.finditer(published)})
    if language is None or not staged:
        raise ValueError("this is not the go.mod of k8s.io/kubernetes: it replaces no staged library")
    library = version.replace("v1.", "v0.", 1)
    lines = ["module penstock.example/kubernetes", language[0]]
    lines += [] if debug is None else [debug[0]]
    lines.append(f"require k8s.io/kubernetes {version}")
    lines += [f"replace {name} => {name} {library}" for name in staged if _SAMPLES not in name]
    return "\n".join(lines) + "\n"


def plain_module(name: str, language: str) -> str:
    """The `go.mod` of a module without dependencies."""
    return f"module penstock.example/{name}\ngo {language}\n"


def version_flags(version: str) -> Sequence[str]:
    """Flags of the linker that tell a program its version: clients and nodes compare it."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return [f"-X=k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
