"""Verdicts read from the output of librdkafka's test runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.goals import Goal, load_goals
from conformance.kafka_tools import tool_environment
from conformance.librdkafka import LibrdkafkaSuite, _configuration, judge
from conformance.outcome import Outcome, Verdict
from conformance.suite import Unit
from lab.librdkafka import Librdkafka


def unit(*tests: str) -> Unit:
    goals = tuple(Goal("librdkafka", test, "broker", 5.0) for test in tests)
    return Unit("librdkafka", tests[0][:4], "default", goals)


def row(test: str, state: str, seconds: float, said: str = "") -> str:
    return f"|\x1b[32m {test:40} | {state:>10} | {seconds:7.3f}s \x1b[0m|\x1b[31m {said}\x1b[0m\n"


def verdict(output: str, test: str = "0036_partial_fetch", ended: int | None = 0) -> Outcome:
    return judge(output, unit(test), ended)[test]


def test_passed() -> None:
    assert verdict(row("0036_partial_fetch", "PASSED", 1.54)) == Outcome(Verdict.PASSED, 1.54)


def test_failed_with_its_reason_and_without_random_topic_names() -> None:
    said = "check():77: topic rdkt_rnd5f3a09c1_0036: expected 3 messages, not 2"
    outcome = verdict(row("0036_partial_fetch", "FAILED", 4.0, said), ended=1)
    assert outcome == Outcome(Verdict.FAILED, 4.0, "check():77: topic 0036: expected 3 messages, not 2")


def test_skipped_with_its_reason() -> None:
    outcome = verdict(row("0036_partial_fetch", "SKIPPED", 0.0, "requires SSL"))
    assert outcome == Outcome(Verdict.SKIPPED, 0.0, "requires SSL")


def test_a_pass_in_no_time_is_a_skip() -> None:
    assert verdict(row("0036_partial_fetch", "PASSED", 0.0)).verdict is Verdict.SKIPPED


PART = "\x1b[0m\x1b[36m[0036_partial_fetch          /  1.1s] \x1b[33m[ do_test:12: {}]\n"


def test_a_pass_whose_every_part_skipped_is_a_skip() -> None:
    output = PART.format("SKIP: no second broker ") + row("0036_partial_fetch", "PASSED", 1.0)
    assert verdict(output).verdict is Verdict.SKIPPED
    assert "no second broker" in verdict(output).reason


def test_a_pass_with_skipped_parts_is_noted() -> None:
    output = PART.format("PASS (0.10s) ") + PART.format("SKIP: no second broker ")
    outcome = verdict(output + row("0036_partial_fetch", "PASSED", 1.0))
    assert outcome == Outcome(Verdict.PASSED, 1.0, "1 of 2 parts skipped: no second broker")


def test_parts_of_another_test_do_not_count() -> None:
    other = PART.replace("0036_partial_fetch", "0037_other_test").format("SKIP: not here ")
    assert verdict(other + row("0036_partial_fetch", "PASSED", 1.0)) == Outcome(Verdict.PASSED, 1.0)


def test_a_pass_that_complains_is_a_failure() -> None:
    test = "0101_fetch_from_follower"
    said = f"\x1b[36m[{test}    /  3.286s] rxbytes was not highest on broker corresponding to client.rack."
    passed = row(test, "PASSED", 3.3)
    assert verdict(said + "Done\n" + passed, test).verdict is Verdict.FAILED
    assert verdict(f"[{test}    /  3.286s] Done\n" + passed, test).verdict is Verdict.PASSED


def test_a_process_that_never_ends_is_a_timeout() -> None:
    assert verdict("still running\n", ended=None).verdict is Verdict.TIMEOUT


def test_a_crash_is_a_failure_with_the_last_output() -> None:
    failure = (
        '\x1b[31m### Test "0036_partial_fetch (part)" failed at test.c:99:check() at Sun Nov 15: ###\n'
        "wrong offset 7\n"
    )
    outcome = verdict(failure, ended=-6)
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "test.c:99:check: wrong offset 7")
    assert "ended with -11" in verdict("segmentation fault\n", ended=-11).reason


def test_one_verdict_for_each_test_that_shares_the_number() -> None:
    names = ("0045_subscribe_update", "0045_resubscribe_with_regex")
    output = row(names[0], "PASSED", 2.0) + row(names[1], "FAILED", 3.0, "no")
    found = judge(output, unit(*names), 1)
    assert [found[name].verdict for name in names] == [Verdict.PASSED, Verdict.FAILED]


@pytest.mark.parametrize("scenario", ["default", "noautocreate"])
def test_units_share_a_process_only_within_a_number_and_scenario(scenario: str) -> None:
    goals = [
        Goal("librdkafka", "0045_a", "groups", 1.0),
        Goal("librdkafka", "0036_b", "broker", 1.0),
        Goal("librdkafka", "0045_c", "groups", 1.0, scenario=scenario),
    ]
    shared = scenario == "default"
    assert len(LibrdkafkaSuite().units(goals)) == (2 if shared else 3)


def test_the_new_protocol_is_a_suite_of_its_own() -> None:
    assert LibrdkafkaSuite().name == "librdkafka"
    assert LibrdkafkaSuite("consumer").name == "librdkafka-consumer"
    assert {goal.milestone for goal in load_goals().select(["librdkafka-consumer"])} == {"groups"}


def test_the_tests_and_the_tools_connect_with_the_security_of_the_cluster(tmp_path: Path) -> None:
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "tester",
        "sasl.password": "secret",
        "ssl.ca.location": "/ca.pem",
    }
    assert "sasl.password=secret\nssl.ca.location=/ca.pem\n" in _configuration("host:1", client)
    environment = tool_environment(tmp_path, client)
    path = Path(environment["PENSTOCK_COMMAND_CONFIG"])
    assert path.stat().st_mode & 0o077 == 0
    settings = dict(line.split("=", 1) for line in path.read_text().splitlines())
    assert settings["ssl.truststore.location"] == "/ca.pem"
    assert (settings["security.protocol"], settings["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert 'username="tester" password="secret"' in settings["sasl.jaas.config"]
    assert tool_environment(tmp_path, {}) == {}


@pytest.mark.parametrize(
    ("config", "zstd", "http", "expected"),
    [
        ("#define WITH_ZSTD 1\n", True, False, False),
        ("#define WITH_ZSTD 1\n", False, True, True),
        ("", True, False, True),
        ("", False, False, False),
    ],
)
def test_tests_with_zstd_or_tokens_run_with_a_library_that_has_them(
    tmp_path: Path, config: str, zstd: bool, http: bool, expected: bool
) -> None:
    (tmp_path / "config.h").write_text(config)
    path = Librdkafka(tmp_path).path_with(tmp_path / "lib", zstd=zstd, http=http)
    assert ((tmp_path / "lib" / "librdkafka.so.1").exists(), str(tmp_path / "lib") in path) == (
        expected,
        expected,
    )
