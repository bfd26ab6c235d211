"""Plans, their execution and throttles over HTTP, on a cluster of real brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.testclient import TestClient

from penstock.cli.alteration import alter_configs, broker_resource, config_entries, topic_resource
from penstock.cli.cluster.planner import plan_for_console
from penstock.cli.connection import Cluster as Connection
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.console.web.reassignment_routes import Planner
from penstock.model.addresses import parse_bootstrap
from penstock.testing import Cluster, cluster
from tests.testing.cluster_clients import CLIENT, produce
from tests.waiting import eventually

_names = count()
LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
#: more than the leader gives at once, so that the last of it waits for what the throttle allows
VALUES = [bytes(500_000)] * 6


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster(brokers=4, config={"min.insync.replicas": "1"}) as made:
        yield made


@contextmanager
def console_of(running: Cluster, planner: Planner | None = plan_for_console) -> Iterator[TestClient]:
    bootstrap = parse_bootstrap(running.bootstrap)
    settings = ConsoleSettings(bootstrap=bootstrap, hosts=["testserver"], timeout_s=20.0, planner=planner)
    with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
        yield client


@pytest.fixture(scope="module")
def console(running: Cluster) -> Iterator[TestClient]:
    with console_of(running) as client:
        yield client


def make_topic(running: Cluster, *replicas: list[int]) -> str:
    name = f"moved-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
    topic = NewTopic(name, len(replicas), replica_assignment=list(replicas))
    admin.create_topics([topic])[name].result(60)
    for index in range(len(replicas)):
        running.wait_for_leader(name, index)
    # The console asks any of the brokers.
    brokers = [running._node(number).broker for number in range(1, 5)]
    running.wait_until(lambda: all(name in each.stages.cluster.image.topics for each in brokers))
    return name


def state(console: TestClient) -> dict[str, Any]:
    answer = console.get("/api/reassignment")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def posted(console: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = console.post(f"/api/reassignment/{path}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def replicas(running: Cluster, topic: str, index: int = 0) -> list[int]:
    return running._partition(topic, index, lambda image: list(image.replicas)) or []


def rates(running: Cluster, *names: str) -> dict[str, dict[str, str]]:
    """The throttles that are set of brokers and topics, without those that have none."""
    connection = Connection(running.bootstrap, 60)
    resources = {name: topic_resource(name) for name in names}
    resources |= {str(broker): broker_resource(str(broker)) for broker in running.ids}
    found = {
        name: {
            e["name"]: e["value"]
            for e in config_entries(connection, resource)
            if "thrott" in e["name"] and e["source"].startswith("DYNAMIC")
        }
        for name, resource in resources.items()
    }
    return {name: values for name, values in found.items() if values}


def test_a_plan_is_shown_before_anything_moves(running: Cluster, console: TestClient) -> None:
    topic = make_topic(running, *[[1, 2]] * 6)
    before = state(console)
    assert [broker["id"] for broker in before["brokers"]] == [1, 2, 3, 4]
    assert before["spread"]["replicas"] > 0.5
    plan = posted(console, "plan", {"topics": topic})
    assert plan["total"] == len(plan["moves"]) > 0
    assert {broker for move in plan["moves"] for broker in move[3]} & {3, 4}
    assert all(replicas(running, topic, index) == [1, 2] for index in range(6))
    done = posted(console, "execute", {"plan": plan["plan"]})
    assert done == {"started": plan["total"], "refused": 0, "reason": None}
    running.wait_until(lambda: all(replicas(running, m[0], m[1]) == m[3] for m in plan["moves"]))
    running.wait_until(lambda: not state(console)["moves"])
    # A plan is executed once.
    again = console.post("/api/reassignment/execute", json={"plan": plan["plan"]})
    assert (again.status_code, again.json()["error"]) == (409, "STALE_PLAN")


def test_a_throttle_holds_until_all_moves_are_cancelled(running: Cluster, console: TestClient) -> None:
    topic = make_topic(running, [1])
    produce(running, topic, *VALUES)
    move = {"topic": topic, "partition": 0, "replicas": [2]}
    posted(console, "move", {"moves": [move], "throttle": 1})
    found = state(console)
    (moving,) = found["moves"]
    assert (moving["adding"], moving["removing"], moving["in_sync"]) == ([2], [1], 0)
    assert moving["progress"] < 1
    assert moving["to_copy"] > 3_000_000
    assert found["throttle"]["by_move"] and found["throttle"]["ends_itself"]
    assert {(r["broker"], r["leader"], r["follower"]) for r in found["throttle"]["rates"]} == {
        (broker, 1, 1) for broker in running.ids
    }
    assert topic in rates(running, topic)
    assert posted(console, "cancel", {"partitions": [[topic, 7]]}) == {"cancelled": 0}
    assert posted(console, "cancel", {"partitions": None}) == {"cancelled": 1}
    running.wait_until(lambda: rates(running, topic) == {})
    assert replicas(running, topic) == [1]
    assert state(console)["throttle"]["rates"] == []


def test_the_console_ends_the_throttle_after_the_moves(running: Cluster, console: TestClient) -> None:
    topic = make_topic(running, [1])
    connection = Connection(running.bootstrap, 60)
    alter_configs(connection, broker_resource("1"), {LEADER: "900000000"})
    move = {"topic": topic, "partition": 0, "replicas": [2, 1]}
    posted(console, "move", {"moves": [move], "throttle": 50_000_000})
    running.wait_until(lambda: replicas(running, topic) == [2, 1])
    # Without the 30 s of the controller, and with the rate of an operator.
    running.wait_until(lambda: rates(running, topic) == {"1": {LEADER: "900000000"}})
    running.wait_until(lambda: running.leader(topic) == 2)
    assert not state(console)["throttle"]["by_move"]
    alter_configs(connection, broker_resource("1"), {}, [LEADER])


def test_a_throttle_ends_without_the_console(running: Cluster) -> None:
    """The console is stopped right after the start of the moves."""
    topic = make_topic(running, [1])
    with console_of(running) as console:
        move = {"topic": topic, "partition": 0, "replicas": [1, 3]}
        posted(console, "move", {"moves": [move], "throttle": 50_000_000})
    running.wait_until(lambda: replicas(running, topic) == [1, 3])
    assert rates(running, topic)["1"][LEADER] == "50000000"
    running.advance(45)
    running.wait_until(lambda: rates(running, topic) == {})


def test_a_throttle_that_is_left_is_removed_by_a_button(running: Cluster, console: TestClient) -> None:
    topic = make_topic(running, [1])
    produce(running, topic, *VALUES)
    with console_of(running) as gone:
        posted(gone, "move", {"moves": [{"topic": topic, "partition": 0, "replicas": [4]}], "throttle": 1})
    assert state(console)["throttle"]["by_move"]
    assert posted(console, "throttle/end", {}) == {"ended": 5}
    running.wait_until(lambda: rates(running, topic) == {})
    running.wait_until(lambda: replicas(running, topic) == [4])


def test_a_plan_of_replicas_that_have_moved_since_is_refused(running: Cluster, console: TestClient) -> None:
    topic = make_topic(running, *[[1, 2]] * 6)
    plan = posted(console, "plan", {"topics": topic, "by": "bytes"})
    name, index = plan["moves"][0][:2]
    posted(console, "move", {"moves": [{"topic": name, "partition": index, "replicas": [4]}]})
    running.wait_until(lambda: replicas(running, name, index) == [4])
    running.wait_until(lambda: not state(console)["moves"])
    refused = console.post("/api/reassignment/execute", json={"plan": plan["plan"]})
    assert (refused.status_code, refused.json()["error"]) == (409, "STALE_PLAN")
    assert f"{name}-{index}" in refused.json()["message"]


def test_a_drained_broker_stays_empty(running: Cluster, console: TestClient) -> None:
    topic = make_topic(running, [4, 1], [1, 4])
    full = make_topic(running, [1, 2, 3, 4])
    plan = posted(console, "plan", {"topics": "moved-", "leaving": [4]})
    assert (plan["stuck"], plan["stuck_example"]) == (1, f"{full}-0")
    assert posted(console, "execute", {"plan": plan["plan"], "keep_empty": True})["refused"] == 0
    running.wait_until(lambda: all(4 not in replicas(running, topic, index) for index in range(2)))
    assert posted(console, "plan", {"topics": full})["excluded"] == [4]
    unknown = console.post("/api/reassignment/plan", json={"leaving": [99]})
    assert (unknown.status_code, "broker 99" in unknown.json()["message"]) == (400, True)


@pytest.mark.parametrize(
    ("move", "status", "said"),
    [
        ({"topic": "never-made", "partition": 0, "replicas": [1]}, 404, "never-made-0"),
        ({"partition": 9, "replicas": [1]}, 404, "-9"),
        ({"partition": 0, "replicas": [1, 1]}, 400, "twice"),
        ({"partition": 0, "replicas": []}, 400, "length"),
        ({"partition": 0, "replicas": [1, 99]}, 409, "99"),
    ],
)
def test_a_move_that_makes_no_sense_leaves_no_throttle(
    running: Cluster, console: TestClient, move: dict[str, Any], status: int, said: str
) -> None:
    topic = make_topic(running, [1])
    running.wait_until(lambda: console.get(f"/api/topics/{topic}").status_code == 200)
    answer = console.post(
        "/api/reassignment/move", json={"moves": [{"topic": topic, **move}], "throttle": 1000}
    )
    assert answer.status_code == status, answer.text
    assert said in answer.json()["message"]
    running.wait_until(lambda: rates(running, topic) == {})
    for rate in (0, -1, "fast"):
        wrong = console.post("/api/reassignment/move", json={"moves": [move], "throttle": rate})
        assert wrong.status_code == 400


def test_a_request_of_another_page_is_refused(console: TestClient) -> None:
    for path in ("plan", "execute", "move", "cancel", "throttle/end"):
        answer = console.post(f"/api/reassignment/{path}", json={}, headers={"x-penstock-console": ""})
        assert answer.status_code == 403, path


def test_other_requests_are_served_while_a_plan_is_made(running: Cluster) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*given: Any, **named: Any) -> list[tuple[str, int, list[int]]]:
        begun.set()
        assert go_on.wait(60)
        return []

    with console_of(running, slow) as console:
        state(console)
        answers: list[int] = []
        asking = threading.Thread(
            target=lambda: answers.append(console.post("/api/reassignment/plan", json={}).status_code)
        )
        asking.start()
        assert begun.wait(60)
        assert console.get("/api/overview").status_code == 200
        go_on.set()
        asking.join(60)
        assert answers == [200]


def test_a_console_without_a_planner_makes_no_plans(running: Cluster) -> None:
    with console_of(running, None) as console:
        assert state(console)["plans"] is False
        assert console.post("/api/reassignment/plan", json={}).status_code == 409


def test_the_size_of_a_silent_broker_is_not_known(running: Cluster) -> None:
    with console_of(running) as console:
        state(console)
        running.kill(3)
        eventually(lambda: state(console)["brokers"][2]["state"] != "running")
        found = state(console)
        assert (found["brokers"][2]["size"], found["spread"]["size"]) == (None, None)
        running.start(3)
