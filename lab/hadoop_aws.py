"""Hadoop's client of S3, by which Spark reaches its checkpoints there: jars from Maven Central.

Its own dependency is one jar with all of Amazon's services (600 MB); these are the parts that it uses.
"""

from __future__ import annotations

from pathlib import Path

from lab.home import built, command, lab_root, require

#: The version is that of Hadoop in Spark.
JARS = ("org.apache.hadoop:hadoop-aws:3.5.0",)
#: with all that they depend on
LIBRARIES = (
    "software.amazon.awssdk:s3-transfer-manager:2.35.4",
    "software.amazon.awssdk:sts:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def hadoop_aws_jars() -> str:
    """The value for `spark.jars`."""
    folder = built(lab_root() / "hadoop-aws", JARS + LIBRARIES, _download)
    return ",".join(sorted(str(jar) for jar in folder.glob("*.jar")))


def _download(folder: Path) -> None:
    require("mvn", "java")
    print("fetching Hadoop's client of S3 from Maven Central (once)", flush=True)
    wanted = [*((each, _ALONE) for each in JARS), *((each, "") for each in LIBRARIES)]
    project = folder / "pom.xml"
    project.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>penstock</groupId><artifactId>lab</artifactId><version>1</version><dependencies>"
        f"{''.join(_dependency(*each) for each in wanted)}</dependencies></project>"
    )
    copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
    command([*copy, f"--file={project}", f"-DoutputDirectory={folder}"], folder)
    # Spark has these, and one version of each must do.
    for jar in folder.glob("*.jar"):
        if jar.name.startswith(("slf4j-", "commons-logging-")):
            jar.unlink()


def _dependency(artifact: str, exclusions: str) -> str:
    group, name, version = artifact.split(":")
    fields = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{fields}{exclusions}</dependency>"
