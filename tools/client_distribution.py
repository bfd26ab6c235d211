"""Writes the sources of the distribution `penstock-mq-client`: the modules that the clients import.

python -m tools.client_distribution FOLDER

A program that installs it has `Producer`, `Consumer`, `Admin` and `Queue`, and four packages of others. The
files are those of `penstock-mq` in the same version, byte for byte (ADR 136).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grimp

from penstock.model.installation import CLIENT_EXTRAS
from penstock.version import VERSION

__all__ = ["DEPENDENCIES", "NAME", "as_toml", "modules", "project", "write"]

ROOT: Final = Path(__file__).parent.parent
NAME: Final = "penstock-mq-client"
#: of those of `penstock-mq`, which also have their versions
DEPENDENCIES: Final = ("confluent-kafka", "cramjam", "crc32c", "msgspec")
_PACKAGE: Final = "penstock"
_CLIENTS: Final = "penstock.client"
#: What the package gives out on first use, but the distribution does not have.
_LEFT_OUT: Final = "penstock.frames"
_OF_BROKERS: Final = ("Framework :: Pytest", "Intended Audience :: System Administrators", "Topic :: System")
_README: Final = """\
# The Python clients of Penstock

`Producer`, `Consumer`, `Admin` and `Queue` for Penstock, Apache Kafka and other brokers that speak the Kafka
protocol, without the broker and the command line:

```python
import asyncio
from penstock import Producer


async def main():
    async with Producer("127.0.0.1:9092") as producer:
        await producer.send("greetings", "hello")


asyncio.run(main())
```

`penstock-mq` has the same files and everything else. An environment with both needs the same version of both:
`pip install 'penstock-mq-client[broker]'`.
"""


def modules() -> list[str]:
    """The modules of the clients, and all that these import, also within functions."""
    graph = grimp.build_graph(_PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    graph.remove_import(importer=_PACKAGE, imported=_LEFT_OUT)
    waiting = [_CLIENTS, *graph.find_descendants(_CLIENTS)]
    found: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        parent = module.rpartition(".")[0]
        waiting += [*graph.find_modules_directly_imported_by(module), *([parent] if parent else [])]
    return sorted(found)


def project(whole: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The content of `pyproject.toml`, from that of `penstock-mq`."""
    known = whole["project"]
    same = ("requires-python", "license", "license-files", "authors", "urls")
    required = {re.split(r"[<>=]", text)[0]: text for text in known["dependencies"]}
    extras = {extra: known["optional-dependencies"][extra] for extra in CLIENT_EXTRAS}
    return {
        "build-system": whole["build-system"],
        "project": {
            "name": NAME,
            "version": version,
            "description": "Python clients of Penstock and Apache Kafka, without the broker",
            "readme": "README.md",
            **{key: known[key] for key in same if key in known},
            "keywords": ["kafka", "message queue", "client", "producer", "consumer", "asyncio"],
            "classifiers": [each for each in known["classifiers"] if not each.startswith(_OF_BROKERS)],
            "dependencies": [required[name] for name in DEPENDENCIES],
            "optional-dependencies": {**extras, "broker": [f"{known['name']}=={version}"]},
        },
        "tool": {
            "hatch": {
                "build": {
                    "targets": {
                        "sdist": {"only-include": ["src", "LICENSE", "README.md", "pyproject.toml"]},
                        "wheel": {"packages": [f"src/{_PACKAGE}"]},
                    }
                }
            }
        },
    }


def as_toml(content: Mapping[str, Any], section: str = "") -> str:
    """TOML of tables, strings and lists: a string of JSON is one of TOML, too."""
    values = {key: value for key, value in content.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    text = "\n".join(([f"[{section}]"] if values else []) + lines) + ("\n\n" if values else "")
    return text + "".join(
        as_toml(table, f"{section}.{key}" if section else key) for key, table in tables.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def write(folder: Path, root: Path = ROOT) -> None:
    """Write the sources that build `penstock-mq-client` into a folder, from those of `penstock-mq`."""
    for module in modules():
        path = Path("src", *module.split("."))
        packaged = (root / path).is_dir()
        path = path / "__init__.py" if packaged else path.with_suffix(".py")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, folder / path)
    shutil.copyfile(root / "src" / _PACKAGE / "py.typed", folder / "src" / _PACKAGE / "py.typed")
    shutil.copyfile(root / "LICENSE", folder / "LICENSE")
    whole = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    (folder / "pyproject.toml").write_text(as_toml(project(whole, VERSION)), encoding="utf-8")
    (folder / "README.md").write_text(_README, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.client_distribution")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    write(folder)


if __name__ == "__main__":
    main()
