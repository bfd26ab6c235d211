"""The pytest plugin, as a user's test suite meets it: installed, not configured."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ["pytester"]


def test_the_fixture_is_a_broker_of_each_tests_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import Consumer, Producer, TopicPartition

        @pytest.mark.parametrize("value", [b"one", b"two"])
        def test_round_trip(penstock_broker, value):
            address = {"bootstrap.servers": penstock_broker.bootstrap}
            producer = Producer(address)
            assert "orders" not in producer.list_topics(timeout=60).topics
            producer.produce("orders", value)
            assert producer.flush(60) == 0
            consumer = Consumer({**address, "group.id": "g", "enable.auto.commit": False})
            consumer.assign([TopicPartition("orders", 0, 0)])
            assert consumer.poll(60).value() == value
            consumer.close()
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error").assert_outcomes(passed=2)


def test_the_cluster_fixtures_give_clusters(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka.admin import AdminClient

        def brokers(cluster):
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            return sorted(admin.list_topics(timeout=60).brokers)

        def test_three(penstock_cluster):
            assert brokers(penstock_cluster) == [1, 2, 3]

        def test_as_many_as_wanted(make_penstock_cluster):
            assert brokers(make_penstock_cluster(1)) == [1]
            assert brokers(make_penstock_cluster(brokers=2, config={"num.partitions": "5"})) == [1, 2]
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error").assert_outcomes(passed=2)


def test_the_fixture_is_documented_where_pytest_lists_fixtures(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    result.stdout.re_match_lines([r"penstock_broker.*", r".*[Bb]roker.*"])


def test_a_test_run_that_uses_no_broker_loads_none() -> None:
    """pytest loads the plugin into every test run on the machine."""
    heavy = {"penstock.broker", "penstock.storage", "uvloop", "asyncio", "confluent_kafka"}
    code = f"import sys, penstock.testing.plugin; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n", done.stderr
