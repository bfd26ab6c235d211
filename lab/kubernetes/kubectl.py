"""kubectl, with the rights of one kubeconfig."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.home import LabError

__all__ = ["Kubectl"]


class Kubectl:
    """Runs kubectl; `LabError` with what it printed if it fails."""

    def __init__(self, program: Path, access: Path, namespace: str = "default") -> None:
        self.program = program
        self.access = access
        self.namespace = namespace

    def within(self, namespace: str) -> Kubectl:
        """The same rights in another namespace."""
        return Kubectl(self.program, self.access, namespace)

    def __call__(self, *words: str, given: str | None = None) -> str:
        options = (f"--kubeconfig={self.access}", f"--namespace={self.namespace}")
        done = subprocess.run(
            [self.program, *options, *words], input=given, capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise LabError(f"kubectl {' '.join(words)} ended with {done.returncode}: {said}")
        return done.stdout

    def read(self, *words: str) -> Any:
        """An object, or a list of them."""
        return json.loads(self("get", *words, "--output=json"))

    def apply(self, objects: Iterable[dict[str, Any]]) -> None:
        """Create or change objects."""
        found = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("apply", "--filename=-", given=json.dumps(found))
