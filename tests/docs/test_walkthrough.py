"""Every block of the documentation runs, in the order of the pages, on one fresh broker.

A topic or a group of an earlier page must not stand in the way of a later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.cli.cluster.broker_home import homes_in
from penstock.cli.cluster.starting import stop_again
from penstock.model.config import load_config_file
from tests.cli.running import consecutive_free_ports
from tests.docs.walkthrough import ROOT, Shell, blocks, pages, running_broker

pytestmark = pytest.mark.process

#: lines that cannot run here, and why
NOT_HERE: Final = {
    "pip install": "the package is there",
    "penstock telemetry scrape": "needs machines with dcgm-exporters",
    "penstock telemetry nvml": "needs a GPU",
    "penstock up --config machine.yaml": "three machines: tests/cli/machine/test_several_machines.py",
    "penstock cluster status --bootstrap machine-1": "three machines, as above",
    "penstock broker drain --machine": "three machines, as above",
}
#: what the blocks in Python print, in the order of the pages
PRINTED: Final = {
    "README.md": ["b'en' b'hello' 0\n", "b'ada' b'bill for 7 apples'\n"],
    "docs/clients.md": [
        "0\nb'home' {'visitor': 'ada'}\n",
        "2\n",
        "True\n0\n",
        "booked 1\nbooked 2\nb'many' b'ValueError'\n",
        "Topic(name='invoices', partitions=6, replicas=1)\n6 True\n"
        "1 [1] PartitionDescription(id=0, leader=1, replicas=(1,), isr=(1,))\nTrue\n",
        "west active 0 0\norders*\n",
    ],
    "docs/groups.md": ["0\n1\n2\n", "payments-0 lag 0\n"],
    "docs/frames.md": [
        "True ['key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType']\n",
    ],
    "docs/streams.md": ["6\n"],
    "docs/transactions.md": [
        "",
        "1\n",
        "[b'5', b'7']\n",
        "not supported: the cluster refuses two-phase transactions of 'loader-check': set "
        "transaction.two.phase.commit.enable=true in the config of all brokers, and allow Write and "
        "TwoPhaseCommit on this transactional id\n",
    ],
    "docs/queues.md": [
        "user-0 1\nuser-1 1\nuser-2 1\n",
        "rejected b'many'\n",
        "painted 1\npainted 2\nb'broken' ValueError\n",
        "b'7 pounds' b'Record rejected by the consumer.'\n",
        "b'drink water' True\n",
    ],
    "docs/queues-coming-from.md": [
        "b'invoice 7' 1\n",
        "b'resize cat.png'\nb'resize cat.png' 2\n",
        "5\n",
    ],
}
#: pages that another test runs, or that nothing here can run
ELSEWHERE: Final = {
    "docs/archive.md": "tests/cli/commands/test_backup.py",
    "docs/cluster.md": "test_the_page_about_clusters",
    "docs/links.md": "a second cluster: tests/broker/links/test_commands.py",
    "docs/upgrading.md": "a cluster of an earlier version: tests/rolling/test_rolls.py",
    "docs/migrating-from-kafka.md": "tests/docs/test_migration.py",
    "docs/migrating-from-nats.md": "tests/docs/test_migration_nats.py",
    "docs/migrating-from-rabbitmq.md": "tests/docs/test_migration_rabbitmq.py",
    "docs/migrating-from-sns.md": "tests/docs/test_migration_sns.py",
    "docs/migrating-from-sqs.md": "tests/docs/test_migration_sqs.py",
    "docs/newcomer.md": "a record of the README's blocks: make newcomer",
    "docs/console.md": "servers that run until Ctrl-C: tests/console",
    "docs/testing.md": "tests/testing/test_documentation.py",
    "docs/spark.md": "tests/spark/test_page.py",
    "docs/tables.md": "an object store, and a job that runs until Ctrl-C: tests/tables",
    "docs/telemetry-api.md": "tests/telemetry/api/test_documentation.py",
    "docs/security.md": "a broker with an authorizer: tests/cli/commands/test_acl.py",
    "docs/pipeline.md": "a Spark cluster, Kubernetes and object stores",
    "docs/observability.md": "a secured cluster: tests/cli/cluster/test_security.py",
    "docs/internals/chaos.md": "for maintainers: the tests themselves",
    "docs/internals/hostile.md": "for maintainers: the tests themselves",
    "docs/internals/simulation.md": "for maintainers: the tests themselves",
    "CONTRIBUTING.md": "for maintainers: the tests themselves",
}
RUNNABLE: Final = ("sh", "python")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the reader is in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}")
    return tmp_path


def test_the_pages_one_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def skipped(line: str) -> bool:
        # The broker of the README's first block runs all the time.
        return line.split("#")[0].strip() == "penstock up" or any(line.startswith(name) for name in NOT_HERE)

    def skipped_again(line: str) -> bool:
        # These brokers have data and ports of their own, and nothing of the first round.
        return line.startswith("penstock up") or skipped(line)

    shell = Shell(monkeypatch, capfd, skipped=skipped)
    with running_broker([]) as bootstrap:
        shell.use(bootstrap)
        assert _printed(shell) == PRINTED
        # Again: offsets go on, so some outputs differ, but what printed something does so again.
        shell_again = Shell(monkeypatch, capfd, skipped=skipped_again)
        shell_again.use(bootstrap)
        again = _printed(shell_again)
        assert {page: list(map(bool, outputs)) for page, outputs in again.items()} == {
            page: list(map(bool, outputs)) for page, outputs in PRINTED.items()
        }


def _printed(shell: Shell) -> dict[str, list[str]]:
    """What the blocks in Python print, in the order of the README's pages."""
    printed: dict[str, list[str]] = {}
    for page in pages():
        if page not in ELSEWHERE:
            for block in blocks(page, *RUNNABLE):
                output = shell.run(block)
                if block.language == "python":
                    printed.setdefault(page, []).append(output)
    return printed


@pytest.fixture
def cluster_folder(folder: Path) -> Iterator[Path]:
    try:
        yield folder
    finally:
        stop_again(homes_in(folder / "cluster"))


def test_the_page_about_clusters(
    cluster_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = consecutive_free_ports(4)

    def rewritten(line: str) -> str:
        # Three brokers do what five do, and start sooner.
        return line.replace("--brokers 5", "--brokers 3").replace("--port 9092", f"--port {first}")

    shell = Shell(monkeypatch, capfd, rewritten=rewritten)
    shell.use(f"127.0.0.1:{first}")
    for block in blocks("docs/cluster.md", "sh"):
        shell.run(block)


def test_config_files_on_the_pages_are_config_files() -> None:
    # These pages have files of Prometheus, Kubernetes and the chart.
    others = {"docs/observability.md", "docs/kubernetes.md"}
    with_files = [page for page in pages() if page not in others]
    found = [block for page in with_files for block in blocks(page, "yaml")]
    assert len(found) > 2
    for block in found:
        load_config_file(block.code, "yaml")


def test_the_readme_lists_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    everything = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in everything if f"]({page})" not in readme} == set()


def test_every_page_with_code_is_run_or_named() -> None:
    """A page that the README does not link to is run by nothing."""
    everything = [str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
    pages_with_code = {page for page in everything if blocks(page, *RUNNABLE)}
    # tests/docs/test_tutorials.py and tests/spark/test_tutorials.py
    with_code = {page for page in pages_with_code if not page.startswith("docs/tutorials/")}
    assert with_code <= {*pages(), *ELSEWHERE}
    assert set(ELSEWHERE) <= with_code
