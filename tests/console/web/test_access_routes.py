"""Security, quotas and transactions over HTTP, on a real broker."""

from __future__ import annotations

import asyncio

from starlette.testclient import TestClient

from penstock.client import Producer

ACL = {
    "permission": "deny",
    "principal": "User:mallory",
    "host": "*",
    "operation": "read",
    "resource": "topic",
    "name": "payroll",
    "pattern": "literal",
}


def test_acls_are_added_explained_and_removed(console: TestClient) -> None:
    assert console.post("/api/acls", json=ACL).status_code == 200
    assert ACL in console.get("/api/security").json()["acls"]
    requested = {"principal": "User:mallory", "operation": "read", "resource": "topic", "name": "payroll"}
    answer = console.post("/api/why", json=requested).json()
    assert (answer["allowed"], answer["acl"], answer["enforced"]) == (False, ACL, True)
    assert console.request("DELETE", "/api/acls", json=ACL).status_code == 200
    assert ACL not in console.get("/api/security").json()["acls"]
    assert console.post("/api/acls", json={**ACL, "operation": "fly"}).status_code == 400


def test_users_get_passwords_and_go(console: TestClient) -> None:
    new = {"user": "ada", "password": "s3cret", "mechanism": "SCRAM-SHA-256"}
    assert console.post("/api/users", json=new).status_code == 200
    listed = console.get("/api/security")
    assert {"user": "ada", "mechanism": "SCRAM-SHA-256", "iterations": 8192} in listed.json()["users"]
    assert "s3cret" not in listed.text
    gone = console.request("DELETE", "/api/users", json={"user": "ada", "mechanism": "SCRAM-SHA-256"})
    assert gone.status_code == 200
    assert console.post("/api/users", json={"user": "x"}).status_code == 400
    assert console.post("/api/users", json={**new, "mechanism": "PLAIN"}).status_code == 400


def test_a_user_is_revoked(console: TestClient) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        new = {"user": "eve", "password": "s3cret", "mechanism": mechanism}
        assert console.post("/api/users", json=new).status_code == 200
    revoked = console.post("/api/users/revoke", json={"user": "User:eve"})
    assert revoked.json() == {"removed": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    assert all(each["user"] != "eve" for each in console.get("/api/security").json()["users"])
    # Of a user without a password only the connections are closed.
    assert console.post("/api/users/revoke", json={"user": "CN=node"}).json() == {"removed": []}
    assert console.post("/api/users/revoke", json={"user": ""}).status_code == 400


def test_members_join_and_leave_roles(console: TestClient) -> None:
    body = {"role": "ops", "member": "User:grace"}
    assert console.post("/api/roles", json=body).status_code == 200
    assert console.get("/api/security").json()["roles"] == {"ops": ["User:grace"]}
    assert console.post("/api/roles", json={**body, "member": "grace"}).status_code == 400
    assert console.request("DELETE", "/api/roles", json=body).status_code == 200
    assert console.get("/api/security").json()["roles"] == {}


def test_quotas_are_set_and_removed(console: TestClient) -> None:
    entity = {"user": None, "client-id": "app"}
    wanted = {"entity": entity, "limits": {"producer_byte_rate": 1024.0}}
    assert console.post("/api/quotas", json=wanted).status_code == 200
    found = console.get("/api/quotas").json()["quotas"]
    assert [q["limits"] for q in found if q["entity"] == entity] == [{"producer_byte_rate": 1024.0}]
    assert (
        console.post("/api/quotas", json={**wanted, "limits": {"producer_byte_rate": None}}).status_code
        == 200
    )
    assert entity not in [q["entity"] for q in console.get("/api/quotas").json()["quotas"]]
    assert console.post("/api/quotas", json={"entity": {}, "limits": {}}).status_code == 400


def test_a_transaction_is_listed_and_described(console: TestClient, bootstrap: str, topic: str) -> None:
    async def commit() -> None:
        async with (
            Producer(bootstrap, transactional_id=f"tx-{topic}") as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(topic, b"v")

    asyncio.run(commit())
    listed = {row["id"]: row for row in console.get("/api/transactions").json()["transactions"]}
    assert listed[f"tx-{topic}"]["state"] == "CompleteCommit"
    described = console.get("/api/transaction", params={"id": f"tx-{topic}"}).json()
    assert (described["state"], described["coordinator"]) == ("CompleteCommit", 1)
    assert console.get("/api/transaction", params={"id": "none"}).status_code == 404
