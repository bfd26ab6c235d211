"""The Helm chart for tests: its values, its schema, and its manifests as Helm renders them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from lab.helm import KUBERNETES, helm_built

__all__ = ["CHART", "SCHEMA", "TEMPLATES", "VALUES", "helm", "leaves", "references", "rendered", "template"]

CHART: Final = Path(__file__).parents[2] / "deploy/helm/penstock"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES: Final = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
_REFERENCE: Final = re.compile(r"\.Values\.(?P<path>[A-Za-z.]+)")
_TIMEOUT_S: Final = 120


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all values; an empty map or a list is one."""
    for name, value in values.items():
        here = f"{path}{name}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{here}.")
        else:
            yield here


def references() -> set[str]:
    """The paths of values that templates name."""
    return {each["path"].rstrip(".") for text in TEMPLATES.values() for each in _REFERENCE.finditer(text)}


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Helm of the lab, or an installed one; the test is skipped if there is none."""
    program = helm_built()
    if program is None:
        pytest.skip("no helm: `make test-tools` builds it, if there is Go")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=_TIMEOUT_S)


def template(*words: str) -> subprocess.CompletedProcess[str]:
    """Render the chart as the release `queue`, for a Kubernetes that Helm cannot ask for its version."""
    return helm("template", "queue", str(CHART), f"--kube-version={KUBERNETES}", *words)


def rendered(values: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The manifests with some values, in the namespace `prod`."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    done = template("--namespace", "prod", "--values", str(file))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]
