"""The steps of every change of a consumer group.

    a subscription or a topic changes ──▶ group epoch + 1 ──▶ new target ──▶ members reconcile one by one

Each step writes its decision as a record. The record is applied at once, so the next step sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember, MemberState
from penstock.groups.ledger import GroupLedger
from penstock.groups.reconciliation import next_assignment
from penstock.groups.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
)
from penstock.groups.targets import Targets
from penstock.groups.topic_regex import matching_topics

__all__ = ["CONSUMER_JOIN", "CONSUMER_SYNC", "CONSUMER_TIMERS", "PATTERNS", "SESSION", "ConsumerSteps"]

#: kinds of timers, each per member: session, revocation of partitions, and, for a classic member, JoinGroup
#: and SyncGroup
SESSION: Final = "consumer-session"
REVOCATION: Final = "consumer-revocation"
CONSUMER_JOIN: Final = "consumer-join"
CONSUMER_SYNC: Final = "consumer-sync"
#: per group: the resolution of its new regular expressions
PATTERNS: Final = "consumer-patterns"
#: timers that remove their member when they expire
CONSUMER_TIMERS: Final = (SESSION, REVOCATION, CONSUMER_JOIN, CONSUMER_SYNC)


class ConsumerSteps:
    """Applies the steps to the consumer groups of one shard."""

    __slots__ = ("_ledger", "targets")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.targets: Final = Targets(ledger)

    # -- subscriptions and topics

    def refresh(self, group: ConsumerGroup, changed: bool) -> None:
        """Raise the group epoch if members' subscriptions have `changed`, or the topics that they match.

        A new regular expression is resolved in a turn of its own, as in Kafka: members that join one after
        the other get their first partitions from one target, instead of the first member's revoked again.
        """
        env = self._ledger.env
        if group.patterns.keys() - group.regexes.keys():
            self._ledger.timers.schedule((PATTERNS, group.id), 0)
        interval_ms = env.settings.consumer_regex_refresh_ms
        is_due = bool(group.regexes) and self._ledger.now_ms - group.resolved_ms > interval_ms
        if not changed and group.image_offset == env.image.offset and not is_due:
            return
        changed |= self._resolve(group, known_only=True, is_due=is_due)
        self._compare_topics(group, changed)

    def _compare_topics(self, group: ConsumerGroup, changed: bool) -> None:
        image = self._ledger.env.image
        # Without a heartbeat since the group was loaded, its expressions are not resolved for this image.
        group.image_offset = image.offset if group.may_describe is not None or not group.patterns else -1
        topics_hash = group.hash_topics(image)
        if changed or topics_hash != group.metadata_hash:
            self.bump(group, topics_hash)

    def bump(self, group: ConsumerGroup, topics_hash: int) -> None:
        self._ledger.write(
            ConsumerGroupMetadataKey(group_id=group.id),
            ConsumerGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=topics_hash),
        )

    def resolve_patterns(self, group: ConsumerGroup) -> None:
        """Resolve the new regular expressions of a group."""
        self._compare_topics(group, self._resolve(group, known_only=False))

    def _resolve(self, group: ConsumerGroup, known_only: bool, is_due: bool = False) -> bool:
        """Match the members' regular expressions with the topics. Returns true if a match has changed.

        Topics that the sender of the last heartbeat may not describe do not match, as in Kafka. So known
        expressions are resolved again if it `is_due`, because rights change without a change of topics.
        """
        image, may_describe = self._ledger.env.image, group.may_describe
        for regex in [r for r in group.regexes if r not in group.patterns]:
            self._ledger.write(
                ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex), None
            )
        if may_describe is None:
            return False
        if is_due or not known_only:
            group.resolved_ms = self._ledger.now_ms
        changed = False
        for regex in sorted(group.patterns):
            known = group.regexes.get(regex)
            if known is None and known_only:
                continue
            if known is not None and known.version == image.offset and not is_due:
                continue
            topics = {topic for topic in matching_topics(regex, image.topics) if may_describe(topic)}
            if known is not None and known.topics == topics:
                continue
            changed = True
            self._ledger.write(
                ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex),
                ConsumerGroupRegularExpressionValue(
                    topics=sorted(topics), version=image.offset, timestamp=self._ledger.now_ms
                ),
            )
        return changed

    # -- members

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Mapping[bytes, Collection[int]] | None,
        subscription_changed: bool,
    ) -> None:
        """Move the member one step towards its target."""
        if not subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return
        image, owners = self._ledger.env.image, group.owners
        value = next_assignment(
            member,
            target_epoch=group.assignment_epoch,
            target=group.target.get(member.id, {}),
            subscribed={image.topics[n].id for n in group.topics_of(member) if n in image.topics},
            subscription_changed=subscription_changed,
            owned=owned,
            is_free=lambda topic, index: owners.get((topic, index), member.id) == member.id,
        )
        if value is None:
            return
        self._ledger.write(member.assignment_key(group.id), value)
        self._expect_revocation(group, member)

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start or stop the timer of a revocation. Classic members have other timers."""
        key = (REVOCATION, group.id, member.id)
        if member.state is MemberState.UNREVOKED and member.classic is None:
            self._ledger.timers.schedule(key, member.rebalance_timeout_ms)
        else:
            self._ledger.timers.cancel(key)

    def resume(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the member's timers after the coordinator was loaded."""
        self.keep_alive(group, member)
        self._expect_revocation(group, member)

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        timeout_ms = self._ledger.env.settings_of(group.id).consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self._ledger.timers.schedule((SESSION, group.id, member.id), timeout_ms)

    def heartbeat_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        """The interval after which a member is to send its next heartbeat.

        A member that waits for partitions reports sooner: clients heartbeat at once after a change of their
        own only, so a partition that another member released would stay idle for a whole interval.
        """
        settings = self._ledger.env.settings_of(group.id)
        waits = (
            group.assignment_epoch < group.epoch
            or member.state is MemberState.UNRELEASED
            or (member.regex or None) not in (None, *group.regexes)
        )
        if not waits:
            return settings.consumer_heartbeat_ms
        # Bounds the heartbeats of a large group, whatever its size.
        waiting_ms = settings.consumer_waiting_heartbeat_ms + len(group.members)
        return min(settings.consumer_heartbeat_ms, waiting_ms)

    def erase(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Write tombstones for all of a member's records."""
        write = self._ledger.write
        write(member.assignment_key(group.id), None)
        write(ConsumerGroupTargetAssignmentMemberKey(group_id=group.id, member_id=member.id), None)
        write(member.metadata_key(group.id), None)
        for kind in CONSUMER_TIMERS:
            self._ledger.timers.cancel((kind, group.id, member.id))
