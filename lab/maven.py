"""Jars from Maven Central, with everything that they depend on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lab.home import built, command, lab_root, require

__all__ = ["jars"]

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lab</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
    </dependency>
"""


def jars(folder: str, name: str, *artifacts: str) -> str:
    """A class path with artifacts, each as `group:artifact:version` or `group:artifact:version:classifier`.

    `folder` of the lab keeps them.
    """
    dependencies = "".join(map(_dependency, artifacts))
    pom = _POM.format(name=name, dependencies=dependencies)
    about = f"fetching {', '.join(artifacts)} from Maven Central (once)"
    return f"{built(lab_root() / folder / 'libs', (pom,), partial(_download, pom, about))}/*"


def _dependency(artifact: str) -> str:
    group, name, version, *classifier = artifact.split(":")
    return _DEPENDENCY.format(
        group, name, version, "".join(f"<classifier>{each}</classifier>" for each in classifier)
    )


def _download(pom: str, about: str, libs: Path) -> None:
    require("mvn", "java")
    print(about, flush=True)
    (libs.parent / "pom.xml").write_text(pom)
    copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
    command([*copy, f"-DoutputDirectory={libs}"], libs.parent)
