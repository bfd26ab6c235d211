"""`spark-submit` with a packed environment, to workers whose Python lacks the package: same tables.

The commands are those of docs/pipeline.md, with the addresses and the checkout of this test in them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.testing import broker
from tests.docs.walkthrough import ROOT
from tests.telemetry.pipeline.clusters import (
    BATCH_ROWS,
    RETRIES,
    compare,
    make_spark_home,
    produce,
    standalone,
)
from tests.telemetry.pipeline.outcomes import QUICK_JVM

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("STANDALONE" not in os.environ, reason="make standalone"),
]

PAGE = ROOT / "docs" / "pipeline.md"
PATIENCE_S = 1200.0


def commands(section: str, language: str) -> list[str]:
    """The blocks of code in a section of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(f"# {section}\n")[2]
    return re.findall(rf"^```{language}\n(.*?)^```", re.split(r"^##", text, flags=re.M)[0], re.S | re.M)


def bare_environment(spark_home: Path) -> dict[str, str]:
    """The environment of a machine with Java, Spark and a Python without packages."""
    java = shutil.which("java")
    assert java is not None, "Spark needs Java"
    path = [str(spark_home / "bin"), str(Path(java).parent), "/usr/bin", "/bin"]
    home = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    own = {"PATH": os.pathsep.join(path), "SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**home, **QUICK_JVM, **own}


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a block of the page with a shell in `folder`; its output."""
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def filled(command: str, **places: str) -> str:
    """The command with each of these places, all of which it must have, replaced."""
    for place, value in places.items():
        assert place in command, f"{place} is not in {command}"
        command = command.replace(place, value)
    return command


def test_a_packed_environment_brings_the_package(spark: SparkSession, tmp_path: Path) -> None:
    spark_home, tables = make_spark_home(tmp_path), tmp_path / "tables"
    bare = bare_environment(spark_home)
    lacking = subprocess.run(["python3", "-c", "import penstock"], env=bare, capture_output=True, text=True)
    assert "No module named 'penstock'" in lacking.stderr, "the machine's own Python must lack the package"
    (program,) = commands("On a cluster", "python")
    (tmp_path / "job.py").write_text(program)
    pack, submit = commands("A packed environment", "sh")
    with_pip = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with_pip["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
    run(filled(pack, **{"penstock-mq[telemetry]": f"{ROOT}[telemetry]"}), tmp_path, with_pip)
    with broker() as running, standalone(spark_home, tmp_path, bare, size=2) as (master, _):
        produce(running.bootstrap)
        places = {
            "spark://HOST:7077": master,
            "kafka:9092": running.bootstrap,
            "s3://telemetry/tables": str(tables),
            "--shards 16": f"--shards 5 --batch-rows {BATCH_ROWS} --retries {RETRIES}",
        }
        run(filled(submit, **places), tmp_path, bare)
        compare(spark, running.bootstrap, tables, tmp_path / "undisturbed")
