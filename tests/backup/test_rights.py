"""ACLs and client quotas in cuts, and in what is restored from them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from penstock.archive.cuts import CutAcl, CutEntity, CutQuota
from penstock.archive.sweeping import find_cut
from penstock.backup.restoring import Restored, chosen_topics, restore_to_directory
from penstock.backup.rights import create_acls, create_quotas, read_acls, read_quotas
from penstock.backup.source import Cluster
from penstock.broker.base.system_ports import SystemRng
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.testing import broker
from tests.backup.clusters import create, produce, store_in, take

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = pytest.mark.slow

#: User:alice may read orders, from one host; nobody may write to topics that start with "audit-"
ACLS = (
    CutAcl(
        resource_type=2,
        resource_name="audit-",
        pattern_type=4,
        principal="User:*",
        host="*",
        operation=4,
        permission_type=2,
    ),
    CutAcl(
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="10.0.0.1",
        operation=3,
        permission_type=3,
    ),
)
QUOTAS = (
    CutQuota(entity=(CutEntity(type="user", name=None),), values={"consumer_byte_rate": 1e6}),
    CutQuota(
        entity=(CutEntity(type="client-id", name="app"), CutEntity(type="user", name="alice")),
        values={"producer_byte_rate": 2e6, "request_percentage": 50.0},
    ),
)
SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


def rights(bootstrap: str) -> tuple[Any, Any]:
    async def read() -> tuple[Any, Any]:
        cluster = Cluster(bootstrap, SystemRng())
        try:
            acls, quotas = await read_acls(cluster), await read_quotas(cluster)
        finally:
            cluster.close()
        return None if acls is None else sorted(acls, key=repr), sorted(quotas or (), key=repr)

    return asyncio.run(read())


def restore(archive: Path, directory: Path, *topics: str) -> Restored:
    async def run() -> Restored:
        store = store_in(archive)
        _, cut = await find_cut(store, None)
        return await restore_to_directory(store, cut, chosen_topics(cut, topics), directory, {})

    return asyncio.run(run())


def test_rights_are_restored_with_the_whole_cluster(tmp_path: Path) -> None:
    async def grant(bootstrap: str) -> None:
        cluster = Cluster(bootstrap, SystemRng())
        try:
            await create_acls(cluster, ACLS)
            await create_quotas(cluster, QUOTAS)
        finally:
            cluster.close()

    with broker(config=SECURED) as running:
        for topic in ("orders", "other"):
            create(running.bootstrap, topic, retention_ms="-1")
            produce(running.bootstrap, topic, [b"1"])
        asyncio.run(grant(running.bootstrap))
        _, cut = take(running.bootstrap, tmp_path / "archive")
        source = rights(running.bootstrap)
        assert source == (sorted(ACLS, key=repr), sorted(QUOTAS, key=repr))
        assert (sorted(cut.acls or (), key=repr), sorted(cut.quotas or (), key=repr)) == source
    result = restore(tmp_path / "archive", tmp_path / "whole")
    assert (result.acls, result.quotas) == (2, 2)
    with broker(data=tmp_path / "whole", config=SECURED) as running:
        assert rights(running.bootstrap) == source
    assert not result.refused
    result = restore(tmp_path / "archive", tmp_path / "part", "orders")
    assert (result.acls, result.quotas) == (0, 0)
    with broker(data=tmp_path / "part", config=SECURED) as running:
        assert rights(running.bootstrap) == ([], [])


def test_refused_rights_are_named_and_the_rest_is_made() -> None:
    strange = msgspec.structs.replace(ACLS[0], operation=99, resource_name="strange")
    unknown = CutQuota(entity=(CutEntity(type="user", name="bob"),), values={"unheard_of_rate": 1.0})

    async def grant(bootstrap: str) -> list[str]:
        cluster = Cluster(bootstrap, SystemRng())
        try:
            refused = await create_acls(cluster, [strange, *ACLS])
            return refused + await create_quotas(cluster, [unknown, *QUOTAS])
        finally:
            cluster.close()

    with broker(config=SECURED) as running:
        acl, quota = asyncio.run(grant(running.bootstrap))
        assert acl.startswith("the ACL of User:* for strange: ")
        assert quota.startswith("the quota of user bob: ")
        assert rights(running.bootstrap) == (sorted(ACLS, key=repr), sorted(QUOTAS, key=repr))


def test_a_cluster_without_an_authorizer_gives_no_acls(tmp_path: Path) -> None:
    with broker() as running:
        create(running.bootstrap, "orders")
        _, cut = take(running.bootstrap, tmp_path / "archive")
        assert cut.acls is None and cut.quotas == ()
    restore(tmp_path / "archive", tmp_path / "data")
    with broker(data=tmp_path / "data") as running:
        assert (
            "orders" in AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=30).topics
        )
