"""The pytest plugin, as a user's test suite meets it: installed, and named in `conftest.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["penstock.testing.plugin"]')


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


def test_assertions_of_the_package_are_not_rewritten(pytester: pytest.Pytester) -> None:
    """pytest rewrites the modules of each distribution whose plugin it finds by itself: 6 CPU seconds."""
    pytester.makepyfile(
        """
        import sys
        from _pytest.assertion.rewrite import AssertionRewritingHook

        def rewritten():
            ours = {n: m for n, m in sys.modules.items() if n.startswith(("penstock", __name__))}
            return [n for n, m in ours.items() if isinstance(m.__loader__, AssertionRewritingHook)]

        def test_loaders(penstock_broker):
            assert sorted(rewritten()) == ["penstock.testing.plugin", __name__]
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_test_run_that_uses_no_broker_loads_none() -> None:
    """pytest loads the plugin before it knows whether a test uses it."""
    heavy = {"penstock.broker", "penstock.storage", "uvloop", "asyncio", "confluent_kafka"}
    code = f"import sys, penstock.testing.plugin; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n", done.stderr
