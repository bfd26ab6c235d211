"""Settings and fixtures of all tests: Hypothesis, the set of fast tests, one Spark session, one Apache Kafka.

`--fast` selects the tests of `make check`: those that start no child process, use no Spark and are not marked
`slow`. A test that does start a child process fails there, so that the set stays fast.

A JVM's class path is that of its start, so the jars of Spark's own Kafka connector are in the session from
the beginning, whichever test comes first.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from penstock.model.config.environment import variable
from tests.rehearsals import events_of, recorded_events
from tools import skipped, unstable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about what else the machine does than about what is tested.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("penstock"), max_examples=25)
settings.load_profile("penstock")

_CHILDREN = pytest.StashKey[int]()
_STARTED = pytest.StashKey[list[object]]()
_FAILED = pytest.StashKey[dict[str, bool]]()
_FAILED_FILE = pytest.StashKey[str | None]()


#: fixtures that start a JVM or brokers in processes of their own
_PROCESS_FIXTURES = frozenset(
    {"spark", "real_kafka", "kafka_connector_jars", "server", "nats_url", "amqp_url", "moto_url", "sqs_url"}
)


#: the mark of all tests of a file
_NOT_FAST = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.(?:process|slow)\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests without child processes and Spark")


#: for brokers in processes of their own: that the disk of this machine is nearly full is no finding here
_ANY_FREE_SPACE = {variable("penstock.disk.free.min.ratio"): "0"}


#: what a user's shell, or another CI, tells commands about their output and their cluster
_OF_THE_CALLER = (
    *(
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "FORCE_COLOR",
        "GITHUB_ACTIONS",
        "LINES",
        "NO_COLOR",
        "PY_COLORS",
    ),
    *("PENSTOCK_BOOTSTRAP", "PENSTOCK_COMMAND_CONFIG", "PENSTOCK_CONFIG", "PENSTOCK_DEBUG"),
)


def pytest_configure(config: pytest.Config) -> None:
    for name in _OF_THE_CALLER:
        os.environ.pop(name, None)
    os.environ.update(_ANY_FREE_SPACE)
    # Out of the environment: the runs of pytest that a test starts judge themselves.
    config.stash[_FAILED_FILE] = os.environ.pop(unstable.VARIABLE, None)
    config.stash[_FAILED] = {}
    if config.getoption("--fast"):
        settings.load_profile("fast")
        _count_processes(config.stash)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Keep the reasons of skipped tests for the end of `make test`: those of one part scroll away."""
    path = os.environ.get(skipped.VARIABLE)
    reports = terminalreporter.stats.get("skipped", [])
    if path and reports:
        reasons = [str(each.longrepr[2]).removeprefix("Skipped: ") for each in reports]
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(f"{reason.splitlines()[0]}\n" for reason in reasons if reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which tests fail, and whether all that went wrong is a timeout."""
    report = yield
    if report.failed:
        timed_out = call.excinfo is not None and unstable.is_timeout(call.excinfo.value)
        failed = item.config.stash[_FAILED]
        failed[item.nodeid] = timed_out and failed.get(item.nodeid, True)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the verdict on failures that can be accidents of time to `tools.unstable`."""
    path, failed = session.config.stash[_FAILED_FILE], session.config.stash[_FAILED]
    if not path or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    final, again = unstable.verdict(failed)
    if again:
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(f"{sys.executable}\t{runs}\t{name}\n" for name, runs in again.items()))
    if failed and not final:
        session.exitstatus = pytest.ExitCode.OK


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file for the fast set of which no test belongs to it."""
    if not config.getoption("--fast") or not collection_path.match("test_*.py"):
        return None
    return True if _NOT_FAST.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        slow = [item for item in items if _is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not _is_slow(item)]


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of garbage collections, which take seconds for so many objects.

    Brokers make few cycles: with the default thresholds, collections are a tenth of a simulated run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _is_slow(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("process", "slow"))
    return marked or not _PROCESS_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_CHILDREN] = _children(item.config)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    if item.config.getoption("--fast") and _children(item.config) > item.stash[_CHILDREN]:
        pytest.fail("the test started a child process: mark it with @pytest.mark.process", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a rehearsal of the runbook in which no broker logs the event."""
    expected = events_of(item.nodeid)
    if not expected:
        return (yield)
    with recorded_events() as seen:
        result = yield
    if missing := expected - seen:
        pytest.fail(f"the runbook is not rehearsed: nothing has logged {', '.join(sorted(missing))}")
    return result


def _count_processes(stash: pytest.Stash) -> None:
    started = stash[_STARTED] = []
    start = subprocess.Popen.__init__

    def counted(self: subprocess.Popen[bytes], *args: Any, **kwargs: Any) -> None:
        started.append(None)
        start(self, *args, **kwargs)

    subprocess.Popen.__init__ = counted  # type: ignore[assignment, method-assign]


def _children(config: pytest.Config) -> int:
    """Grows with every child process that `subprocess` starts, and with all others when they have ended."""
    started = len(config.stash.get(_STARTED, []))
    return started + resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


@pytest.fixture(scope="session")
def kafka_connector_jars() -> str | None:
    """Of Spark's own Kafka connector; None where Maven Central is not at hand."""
    from lab import LabError
    from lab.spark_kafka import spark_kafka_jars

    try:
        return spark_kafka_jars()
    except LabError:
        return None


@pytest.fixture(scope="session")
def spark(
    kafka_connector_jars: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    from pyspark.sql import SparkSession

    from tests.spark_workers import worker_python

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        # Most of what these queries run is run once: optimising it takes longer than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        **({"spark.jars": kafka_connector_jars} if kafka_connector_jars else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with worker_python() as python:
        # For this session alone: commands in other processes choose their interpreter themselves.
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PYSPARK_PYTHON", python)
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka, where Maven Central is at hand."""
    from lab import LabError
    from lab.apache_kafka import apache_kafka

    try:
        settings = {"num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
        server = apache_kafka(tmp_path_factory.mktemp("kafka"), settings)
    except LabError as e:
        pytest.skip(f"there is no Apache Kafka here: {e}")
    server.start()
    try:
        yield server.bootstrap
    finally:
        server.stop()
