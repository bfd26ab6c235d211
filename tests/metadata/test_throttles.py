"""The controller ends throttles that clients have left behind."""

from __future__ import annotations

from penstock.metadata.configs import config_records
from penstock.metadata.image import BROKER, TOPIC, Origin
from penstock.metadata.throttles import end_throttles, has_throttle, is_moving
from penstock.model.steps import at_once
from penstock.reassignment.throttle import RATES, REPLICAS, limit_broker, limit_topic
from tests.metadata.stage import Stage

LEADER, FOLLOWER = RATES


def throttle(stage: Stage, kind: int, name: str, before: dict[str, str]) -> None:
    changes = limit_broker(before, before, 50) if kind == BROKER else limit_topic(before)
    values = before | {key: value for key, value in changes.items() if value is not None}
    stage.commit(config_records(stage.image, (kind, name), values))


def test_brokers_and_topics_are_as_they_were() -> None:
    stage = Stage(brokers=3)
    stage.topic("a", [1, 2])
    stage.topic("b", [1, 2])
    before = dict(stage.image.configs)
    stage.commit(config_records(stage.image, (BROKER, "3"), {LEADER: "70"}))
    assert not has_throttle(stage.image)
    throttle(stage, BROKER, "1", {})
    throttle(stage, BROKER, "2", {LEADER: "900", "num.io.threads": "3"})
    throttle(stage, TOPIC, "a", {})
    throttle(stage, TOPIC, "b", {REPLICAS[0]: "0:1", "retention.ms": "5"})
    assert has_throttle(stage.image)
    records, count = at_once(end_throttles(stage.image))
    assert count == 4
    stage.commit(records)
    assert stage.image.configs == before | {
        (BROKER, "2"): {LEADER: "900", "num.io.threads": "3"},
        (BROKER, "3"): {LEADER: "70"},
        (TOPIC, "b"): {REPLICAS[0]: "0:1", "retention.ms": "5"},
    }
    assert not has_throttle(stage.image)
    assert at_once(end_throttles(stage.image)) == ([], 0)


def test_only_moves_of_clients_keep_a_throttle() -> None:
    stage = Stage(brokers=3)
    stage.topic("a", [1, 2])
    assert not is_moving(stage.image)
    stage.reassign({0: [1, 3]}, "a")
    assert is_moving(stage.image)
    (partition,) = stage.image.reassigning.values()
    partition.origin = Origin.REBUILD
    assert not is_moving(stage.image)
