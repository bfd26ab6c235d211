"""`tests/` mirrors `src/penstock/`.

Each broker module has a test of its name or a row in `ELSEWHERE`. Helpers are in modules without tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES, TESTS = ROOT / "src/penstock/broker", ROOT / "tests/broker"

#: Modules whose behaviour another test shows better: module, and that test.
ELSEWHERE = {
    "app/dispatchers": "request/test_dispatch",
    "app/internal_routes": "request/test_forwarding",
    "app/monitoring": "monitoring/test_pages",
    "app/parts": "app/test_broker",
    "app/routes": "handlers/test_api_versions",
    "app/server": "node/test_quorum",
    "app/share_parts": "handlers/test_shares",
    "app/share_routes": "handlers/test_shares",
    "app/tracing": "monitoring/test_otlp_exporter",
    "authorization/cluster": "authorization/test_table",
    "authorization/forms": "authorization/test_table",
    "authorization/groups": "authorization/test_table",
    "authorization/metadata": "authorization/test_enforcement",
    "authorization/shares": "authorization/test_table",
    "authorization/topics": "authorization/test_table",
    "authorization/transactions": "authorization/test_table",
    "base/access": "authorization/test_enforcement",
    "base/client_telemetry": "handlers/test_client_telemetry",
    "base/context": "handlers/test_replica_fetch",
    "base/repeated": "fetch/test_repeated_client_histories",
    "coordinators/end_offsets": "handlers/test_shares",
    "coordinators/host_settings": "coordinators/test_shard_host",
    "coordinators/share_coordinator": "handlers/test_shares",
    "coordinators/share_group_admin": "handlers/test_shares",
    "coordinators/share_persister": "handlers/test_shares",
    "coordinators/share_state_service": "handlers/test_shares",
    "coordinators/transaction_additions": "handlers/test_transactions",
    "fetch/metered_fetch": "request/test_metered_dispatch",
    "handlers/configs": "handlers/test_alter_configs",
    "handlers/share_answers": "handlers/test_shares",
    "handlers/share_groups": "handlers/test_shares",
    "handlers/share_state": "handlers/test_shares",
    "handlers/topics": "handlers/test_create_topics",
    "healing/environment": "healing/test_scrubber",
    "monitoring/analog_metrics": "monitoring/test_pages",
    "monitoring/cluster_metrics": "monitoring/test_pages",
    "monitoring/documents": "monitoring/test_http_server",
    "monitoring/group_lag": "monitoring/test_cluster",
    "monitoring/group_metrics": "monitoring/test_pages",
    "monitoring/health_facts": "monitoring/test_pages",
    "monitoring/kafka_metrics": "monitoring/test_pages",
    "monitoring/loop_watch": "monitoring/test_cluster",
    "monitoring/monitor": "monitoring/test_pages",
    "monitoring/partition_metrics": "monitoring/test_cluster",
    "monitoring/request_metrics": "monitoring/test_pages",
    "monitoring/sources": "monitoring/test_pages",
    "monitoring/telemetry_metrics": "handlers/test_client_telemetry",
    "node/controller_service": "handlers/test_create_topics",
    "produce/topic_writer": "request/test_audit_topic",
    "replica/links": "replica/test_replication",
    "replica/partition": "replica/test_replication",
    "replica/txn_markers": "handlers/test_txn_markers",
    "request/request_subjects": "request/test_request_watch",
    "shares/acknowledging": "handlers/test_shares",
    "shares/delay_source": "shares/test_delay_mover",
    "shares/start_offset": "handlers/test_shares",
}


def modules() -> list[str]:
    """The broker's modules, as `package/module`."""
    paths = [path.relative_to(SOURCES).with_suffix("") for path in SOURCES.rglob("*.py")]
    return sorted(str(path) for path in paths if path.name != "__init__")


def like_named(module: str) -> Path:
    package, _, name = module.rpartition("/")
    return TESTS / package / f"test_{name}.py"


@pytest.mark.parametrize("module", modules())
def test_a_module_has_a_test_or_a_row(module: str) -> None:
    if module in ELSEWHERE:
        assert not like_named(module).exists(), "the module has a test of its name: remove its row"
        assert (TESTS / f"{ELSEWHERE[module]}.py").exists(), f"there is no {ELSEWHERE[module]}"
    else:
        assert like_named(module).exists(), "write a test of this name, or add a row to ELSEWHERE"


def test_each_row_is_about_a_module() -> None:
    assert set(ELSEWHERE) <= set(modules())


@pytest.mark.parametrize("package", ["broker", "cli"])
def test_packages_of_tests_have_the_names_of_packages(package: str) -> None:
    packages = {path.parent.name for path in (ROOT / "src/penstock" / package).glob("*/__init__.py")}
    assert {path.parent.name for path in (ROOT / "tests" / package).glob("*/test_*.py")} <= packages


def test_tests_of_the_command_line_lie_beside_what_they_test() -> None:
    """A test that has the name of a module of `cli` is in the package of that module."""
    sources, tests = ROOT / "src/penstock/cli", ROOT / "tests/cli"
    modules = {path.relative_to(sources).with_suffix("") for path in sources.rglob("*.py")}
    names = {module.name for module in modules}
    found = {path.relative_to(tests).with_suffix("") for path in tests.rglob("test_*.py")}
    meant = {test.with_name(test.name.removeprefix("test_")) for test in found}
    assert {module for module in meant if module.name in names} <= modules


def test_no_test_imports_another_test() -> None:
    wrong = re.compile(r"^\s*from tests\.[\w.]*\btest_\w+ import", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.py") if wrong.search(path.read_text())
    ]
    assert found == [], "move what is shared into a module without tests"
