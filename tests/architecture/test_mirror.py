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
    "app/broker": "app/test_restart",
    "app/dispatchers": "request/test_dispatch",
    "app/internal_routes": "request/test_forwarding",
    "app/maintenance": "app/test_compaction",
    "app/parts": "app/test_restart",
    "app/routes": "handlers/test_api_versions",
    "app/server": "node/test_quorum",
    "authorization/cluster": "authorization/test_matrix",
    "authorization/forms": "authorization/test_matrix",
    "authorization/groups": "authorization/test_matrix",
    "authorization/metadata": "authorization/test_enforcement",
    "authorization/shares": "authorization/test_matrix",
    "authorization/table": "authorization/test_matrix",
    "authorization/topics": "authorization/test_matrix",
    "authorization/transactions": "authorization/test_matrix",
    "base/access": "authorization/test_enforcement",
    "base/context": "handlers/test_replica_fetch",
    "base/repeated": "fetch/test_repeated_client_histories",
    "coordinators/host_settings": "coordinators/test_shard_host",
    "coordinators/transaction_additions": "handlers/test_transactions",
    "fetch/client_fetch": "handlers/test_fetch",
    "fetch/metered_fetch": "request/test_metered_dispatch",
    "fetch/pipeline": "fetch/test_waiting",
    "fetch/replica_fetch": "handlers/test_replica_fetch",
    "handlers/broker_appends": "request/test_audit_topic",
    "handlers/cluster": "handlers/test_metadata",
    "handlers/configs": "handlers/test_alter_configs",
    "handlers/log_dirs": "replica/test_data_directories",
    "handlers/metered_fetch": "request/test_metered_dispatch",
    "handlers/producers": "produce/test_idempotence",
    "handlers/replica_log_info": "node/test_unclean_recovery",
    "handlers/sasl": "request/test_listener_security",
    "handlers/transaction_listing": "handlers/test_transactions",
    "handlers/topics": "handlers/test_create_topics",
    "healing/compacted_repair": "coordinators/test_damaged_coordinators",
    "healing/environment": "healing/test_scrubber",
    "healing/repair": "healing/test_scrubber",
    "app/monitoring": "monitoring/test_pages",
    "app/tracing": "monitoring/test_otlp_exporter",
    "base/client_telemetry": "handlers/test_client_telemetry",
    "monitoring/documents": "monitoring/test_http_server",
    "monitoring/telemetry_metrics": "handlers/test_client_telemetry",
    "request/request_subjects": "request/test_request_watch",
    "monitoring/analog_metrics": "monitoring/test_pages",
    "monitoring/cluster_metrics": "monitoring/test_pages",
    "monitoring/group_lag": "monitoring/test_cluster",
    "monitoring/group_metrics": "monitoring/test_pages",
    "monitoring/health_facts": "monitoring/test_pages",
    "monitoring/kafka_metrics": "monitoring/test_pages",
    "monitoring/loop_watch": "monitoring/test_cluster",
    "monitoring/monitor": "monitoring/test_pages",
    "monitoring/partition_metrics": "monitoring/test_cluster",
    "monitoring/request_metrics": "monitoring/test_pages",
    "monitoring/slices": "monitoring/test_scale",
    "monitoring/sources": "monitoring/test_pages",
    "node/cluster_node": "node/test_quorum",
    "node/controller": "request/test_forwarding",
    "node/controller_service": "handlers/test_create_topics",
    "node/metadata_home": "node/test_damaged_metadata",
    "node/metadata_loader": "app/test_lifecycle",
    "node/new_topics": "handlers/test_create_topics",
    "node/quorum_driver": "node/test_quorum",
    "node/quorum_wire": "node/test_quorum",
    "node/rejoining": "node/test_quorum_recovery",
    "node/replica_reports": "replica/test_unclean_replicas",
    "replica/fetch_requests": "replica/test_replication",
    "replica/fetch_responses": "replica/test_replication",
    "replica/fetcher": "replica/test_replication",
    "replica/follower_quarantine": "healing/test_scrubber",
    "replica/high_watermark_recovery": "replica/test_replication",
    "replica/leadership": "replica/test_sessions",
    "replica/links": "replica/test_replication",
    "replica/partition": "replica/test_replication",
    "replica/refused_partitions": "replica/test_manifest",
    "replica/replicas": "replica/test_replication",
    "replica/stored_partitions": "replica/test_partitions",
    "replica/txn_markers": "handlers/test_txn_markers",
    "request/internal_listener": "fetch/test_repeated_replica",
    "request/certificate_checks": "request/test_listener_security",
    "request/metadata_users": "request/test_listener_security",
    "request/topic_creator": "handlers/test_metadata",
    "app/share_parts": "handlers/test_shares",
    "app/share_routes": "handlers/test_shares",
    "coordinators/end_offsets": "handlers/test_shares",
    "coordinators/share_coordinator": "handlers/test_shares",
    "coordinators/share_group_admin": "handlers/test_shares",
    "coordinators/share_persister": "handlers/test_shares",
    "coordinators/share_state_service": "handlers/test_shares",
    "handlers/share_answers": "handlers/test_shares",
    "handlers/share_groups": "handlers/test_shares",
    "handlers/share_state": "handlers/test_shares",
    "produce/topic_writer": "request/test_audit_topic",
    "shares/acknowledging": "handlers/test_shares",
    "shares/group_settings": "handlers/test_shares",
    "shares/partition_host": "handlers/test_shares",
    "shares/delay_mover": "shares/test_delay_topics",
    "shares/share_fetch": "handlers/test_shares",
    "shares/share_partitions": "handlers/test_shares",
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
