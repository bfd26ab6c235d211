"""Metrics of the consumer groups that this broker coordinates."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.monitoring.group_lag import GroupLag
from penstock.observability.exposition import Page, escaped

__all__ = ["collect_groups", "collect_kafka_groups"]


def collect_groups(page: Page, lags: GroupLag) -> Iterator[None]:
    records, seconds = page["penstock_group_lag_records"], page["penstock_group_lag_seconds"]
    members, rebalances = page["penstock_group_members"], page["penstock_group_rebalances_total"]
    for survey in lags.groups():
        group = escaped(survey.group)
        labels = f'{{group="{group}"}}'
        members.add(labels, survey.members)
        rebalances.add(labels, survey.rebalances)
        for topic in list(survey.offsets):
            lag = lags.of_topic(survey, topic)
            # A lag that is not known is not 0.
            if any(behind is not None for _, _, behind in lag.partitions):
                labels = f'{{group="{group}",topic="{escaped(topic)}"}}'
                records.add(labels, lag.records)
                seconds.add(labels, round(lag.seconds, 3))
            yield
        yield


def collect_kafka_groups(page: Page, lags: GroupLag) -> Iterator[None]:
    """The same under the names of kafka_exporter, and by partition."""
    offsets, lag_of = page["kafka_consumergroup_current_offset"], page["kafka_consumergroup_lag"]
    offset_sums, lag_sums = (
        page["kafka_consumergroup_current_offset_sum"],
        page["kafka_consumergroup_lag_sum"],
    )
    for survey in lags.groups():
        group = escaped(survey.group)
        page["kafka_consumergroup_members"].add(f'{{consumergroup="{group}"}}', survey.members)
        for topic in list(survey.offsets):
            inner = f'consumergroup="{group}",topic="{escaped(topic)}"'
            lag = lags.of_topic(survey, topic)
            for index, committed, behind in lag.partitions:
                labels = f'{{{inner},partition="{index}"}}'
                offsets.add(labels, committed)
                if behind is not None:
                    lag_of.add(labels, behind)
            offset_sums.add(f"{{{inner}}}", sum(committed for _, committed, _ in lag.partitions))
            if any(behind is not None for _, _, behind in lag.partitions):
                lag_sums.add(f"{{{inner}}}", lag.records)
            yield
        yield
