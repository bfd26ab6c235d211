"""A simulated fleet: the same for the same seed, sane where healthy, wrong where its labels say so."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.telemetry.fields import FIELDS, Kind, Verdict
from penstock.telemetry.message import MalformedSample, Message, Sample, decode, parse_timestamp
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.faults import FaultClass, Plan, plan_faults
from penstock.telemetry.simulate.fleet import GPUS_PER_HOST, JobKind, build_fleet
from penstock.telemetry.simulate.physics import MEASURED
from penstock.telemetry.simulate.run import Scenario, Simulation
from tests.telemetry.recorder import Recorder

START_MS = 1_763_000_000_000


def run(scenario: Scenario, labels: Path | None = None) -> tuple[Simulation, Recorder]:
    recorder = Recorder()
    simulation = Simulation(scenario, recorder, labels)
    simulation.run(lambda second: True, lambda seconds: None)
    return simulation, recorder


def scenario(hosts: int = 4, seed: int = 7, **more: Any) -> Scenario:
    return Scenario(hosts, seed, START_MS, **{"duration_s": 100.0, **more})


def series(samples: list[Sample], number: int, gpu_id: str) -> list[tuple[int, float]]:
    return [(s.timestamp_ms, s.value) for s in samples if s.field.id == number and s.gpu_id == gpu_id]


def test_one_seed_is_one_run() -> None:
    dirt = Shares(0.05, 0.05, 0.05, 0.05, 0.05)
    one, again, other = (run(scenario(dirt=dirt, late_s=30.0, seed=seed))[1].messages for seed in (3, 3, 4))
    assert one == again
    assert one != other


def test_every_message_is_a_valid_sample_of_a_known_gpu() -> None:
    simulation, recorder = run(scenario(faults=0.02))
    fleet = simulation.fleet
    for message, sample in zip(recorder.messages, recorder.samples(), strict=True):
        assert message.key.decode() == sample.gpu_id
        assert message.timestamp_ms == sample.timestamp_ms
        assert sample.field.judge(sample.value) is Verdict.VALID, sample
        gpu = fleet.uuids.index(sample.gpu_id)
        assert sample.hostname == fleet.hostnames[gpu // GPUS_PER_HOST]
        assert sample.device == f"nvidia{gpu % GPUS_PER_HOST}"
        assert sample.labels == fleet.labels(gpu)


def test_healthy_gpus_send_every_field_at_every_tick_once() -> None:
    simulation, recorder = run(scenario(faults=0.0))
    identity = Counter((s.gpu_id, s.field.id, s.timestamp_ms) for s in recorder.samples())
    assert set(identity.values()) == {1}
    assert len(identity) == 4 * GPUS_PER_HOST * len(MEASURED) * 10
    assert simulation.summary()["sent"] == len(identity)
    assert simulation.summary()["faults"] == {}


def test_counters_of_healthy_gpus_never_fall() -> None:
    simulation, recorder = run(scenario(faults=0.0))
    samples = recorder.samples()
    counters = [number for number in MEASURED if FIELDS[number].kind is Kind.COUNTER]
    for gpu_id in simulation.fleet.uuids:
        for number in counters:
            values = [value for _, value in series(samples, number, gpu_id)]
            assert values == sorted(values)


def test_siblings_resemble_each_other_and_power_follows_load() -> None:
    simulation, recorder = run(scenario(hosts=30, faults=0.0, duration_s=30.0))
    last = {(s.gpu_id, s.field.id): s.value for s in recorder.samples()}
    fleet = simulation.fleet

    def values(number: int, kind: JobKind) -> list[float]:
        return [last[fleet.uuids[gpu], number] for gpu in np.flatnonzero(fleet.kind_of == kind)]

    (training, *_) = [job for job in fleet.jobs if job.kind is JobKind.TRAINING]
    assert np.ptp([last[fleet.uuids[gpu], 203] for gpu in training.gpus]) <= 4
    assert min(values(155, JobKind.TRAINING)) > max(values(155, JobKind.IDLE)) + 200
    assert min(values(150, JobKind.TRAINING)) > max(values(150, JobKind.IDLE))
    assert max(values(252, JobKind.IDLE)) == 0 < min(values(252, JobKind.TRAINING))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Sample]]:
    path = tmp_path_factory.mktemp("labels") / "faults.jsonl"
    simulation, recorder = run(scenario(hosts=12, faults=0.005, duration_s=600.0, interval_s=20.0), path)
    labels = [json.loads(line) for line in path.read_text().splitlines()]
    counts = Counter(label["fault"] for label in labels)
    assert counts == simulation.summary()["faults"]
    return labels, recorder.samples()


def inside(label: dict[str, Any], points: list[tuple[int, float]], lag_s: float = 0.0) -> list[float]:
    start, end = parse_timestamp(label["start"]) + 20_000, parse_timestamp(label["end"]) - 20_000
    return [value for at, value in points if start + lag_s * 1000 <= at < end]


def of_class(faulty: tuple[list[dict[str, Any]], list[Sample]], fault: FaultClass) -> list[dict[str, Any]]:
    found = [label for label in faulty[0] if label["fault"] == fault]
    assert found, "each class has at least one"
    return found


def test_labels_name_the_gpu_the_host_and_the_job(faulty: Any) -> None:
    labels, samples = faulty
    hosts = {sample.gpu_id: (sample.hostname, sample.labels.get("hpc_job")) for sample in samples}
    for label in labels:
        assert parse_timestamp(label["start"]) < parse_timestamp(label["end"])
        if label["gpu_id"] is not None:
            assert (label["hostname"], label["job"]) == hosts[label["gpu_id"]]
    assert {label["fault"] for label in labels} == {fault.value for fault in FaultClass}


def test_the_symptoms_are_those_of_the_fault(faulty: Any) -> None:
    samples = faulty[1]

    def during(label: dict[str, Any], number: int, lag_s: float = 0.0) -> list[float]:
        return inside(label, series(samples, number, label["gpu_id"]), lag_s)

    for label in of_class(faulty, FaultClass.SILENT):
        assert during(label, 203) == []
    for label in of_class(faulty, FaultClass.IDLE_OCCUPIED):
        assert set(during(label, 203)) == {0.0}
        assert min(during(label, 252)) > 10_000
        assert label["job"]
    for label in of_class(faulty, FaultClass.FAKE_BUSY):
        assert set(during(label, 203)) == {100.0}
        assert max(during(label, 1002)) == pytest.approx(1 - label["size"], abs=1e-3)
    for label in of_class(faulty, FaultClass.XID):
        assert set(during(label, 230)) == {label["detail"]["xid"]}
    for label in of_class(faulty, FaultClass.ROW_REMAP):
        assert set(during(label, 393)) == {label["size"]}
        assert set(during(label, 396)) == {1.0}
    for label in of_class(faulty, FaultClass.HOT):
        assert min(during(label, 150, 80.0)) > 60
        assert len(set(during(label, 241))) == 1, "hot, but not slowed down"


def test_a_failure_ends_with_a_reset(faulty: Any) -> None:
    for label in of_class(faulty, FaultClass.XID):
        energy = series(faulty[1], 156, label["gpu_id"])
        end = parse_timestamp(label["end"])
        before, after = [v for at, v in energy if at < end], [v for at, v in energy if at >= end + 20_000]
        assert before == sorted(before)
        assert after == sorted(after)
        assert after[0] < 1e9 < before[-1], "mJ: a minute's worth, after months"
        assert {v for at, v in series(faulty[1], 230, label["gpu_id"]) if at >= end + 20_000} == {0.0}


def test_every_fault_begins_and_ends_in_its_period() -> None:
    fleet = build_fleet(16, 5)
    plan = Plan(seed=5, period_s=100.0, share=0.02)
    for number in range(20):
        for fault in plan_faults(fleet, plan, number):
            assert number * 100.0 <= fault.start_s < fault.end_s <= (number + 1) * 100.0


def test_time_lost_to_throttling_is_the_size(faulty: Any) -> None:
    for fault, number in ((FaultClass.POWER_THROTTLE, 240), (FaultClass.THERMAL_THROTTLE, 241)):
        for label in of_class(faulty, fault):
            lost = np.diff(inside(label, series(faulty[1], number, label["gpu_id"]))) / 20e9
            assert lost == pytest.approx(label["size"], abs=0.01)


def test_ecc_errors_come_at_the_rate_of_the_size(faulty: Any) -> None:
    for label in of_class(faulty, FaultClass.ECC):
        number = 311 if label["detail"]["errors"] == "uncorrectable" else 310
        counts = inside(label, series(faulty[1], number, label["gpu_id"]))
        minutes = (len(counts) - 1) / 3
        expected = label["size"] * minutes
        assert counts[-1] - counts[0] == pytest.approx(expected, abs=4 * (1 + expected) ** 0.5)


def test_a_straggler_is_slower_than_its_siblings(faulty: Any) -> None:
    samples = faulty[1]
    for label in of_class(faulty, FaultClass.STRAGGLER):
        siblings = {s.gpu_id for s in samples if s.labels.get("hpc_job") == label["job"]} - {label["gpu_id"]}
        clock = np.median(inside(label, series(samples, 100, label["gpu_id"])))
        others = np.median([v for gpu in siblings for v in inside(label, series(samples, 100, gpu))])
        assert clock / others == pytest.approx(1 - label["size"], abs=0.03)


def test_a_lemon_is_a_host_with_many_faults(faulty: Any) -> None:
    labels = faulty[0]
    for lemon in of_class(faulty, FaultClass.LEMON_NODE):
        events = [one for one in labels if one["hostname"] == lemon["hostname"] and one["fault"] == "xid"]
        assert len(events) == lemon["size"] >= 4
        assert lemon["gpu_id"] is None


def test_dirt_is_counted_exactly() -> None:
    dirt = Shares(late=0.02, out_of_order=0.03, duplicates=0.04, malformed=0.05, sentinels=0.06)
    simulation, recorder = run(scenario(hosts=4, dirt=dirt, late_s=35.0, faults=0.0))
    summary = simulation.summary()
    messages = recorder.messages
    assert summary["sent"] == len(messages)
    verdicts = Counter(_verdict(message) for message in messages)
    assert verdicts["malformed"] == summary["malformed"] > 0
    assert verdicts[Verdict.BLANK] == summary["sentinels"] > 0
    sound = [message for message in messages if _verdict(message) != "malformed"]
    assert len(sound) - len(set(sound)) == summary["duplicates"] > 0
    behind = _seconds_behind(messages)
    assert sum(seconds >= 35.0 for seconds in behind) >= summary["late"] > 0
    originals = 4 * GPUS_PER_HOST * len(MEASURED) * 10
    assert summary["sent"] == originals + summary["duplicates"], "nothing is lost in between"


def _verdict(message: Message) -> str:
    try:
        sample = decode(message.value)
    except MalformedSample:
        return "malformed"
    return sample.field.judge(sample.value)


def _seconds_behind(messages: list[Message]) -> list[float]:
    newest, behind = 0, []
    for message in messages:
        newest = max(newest, message.timestamp_ms)
        behind.append((newest - message.timestamp_ms) / 1000)
    return behind


def test_without_dirt_times_never_go_back() -> None:
    _, recorder = run(scenario(faults=0.0))
    assert set(_seconds_behind(recorder.messages)) == {0.0}


def test_held_back_samples_are_sent_when_a_run_is_stopped() -> None:
    recorder = Recorder()
    simulation = Simulation(scenario(dirt=Shares(late=0.5), late_s=50.0, duration_s=None), recorder)
    simulation.run(lambda second: second < 30, lambda seconds: None)
    summary = simulation.summary()
    assert (summary["late"], summary["sent"]) == (0, len(recorder.messages))
    assert summary["out_of_order"] > 0


def test_faults_go_on_period_after_period() -> None:
    simulation, _ = run(scenario(hosts=1, duration_s=300.0, fault_period_s=100.0, interval_s=50.0))
    faults = simulation.summary()["faults"]
    assert faults["xid"] == 3


def test_a_fleet_of_any_size_has_a_job_with_siblings() -> None:
    for hosts in (1, 2, 9):
        fleet = build_fleet(hosts, 1)
        assert fleet.gpus == hosts * GPUS_PER_HOST
        assert fleet.jobs[0].kind is JobKind.TRAINING
        assert len(fleet.jobs[0].gpus) >= GPUS_PER_HOST
