"""The steps of every change of a consumer group.

    a subscription or a topic changes ──▶ group epoch + 1 ──▶ new target ──▶ members reconcile one by one

Each step writes its decision as a record. The record is applied at once, so the next step sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.epoch_group import MemberState
from penstock.groups.large_assignments import ASSIGNMENT, LargeAssignments
from penstock.groups.ledger import GroupLedger
from penstock.groups.reconciliation import next_assignment, stays
from penstock.groups.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
)
from penstock.groups.targets import TARGET, Targets
from penstock.groups.topic_regexes import ResolveTopicRegexes

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

    __slots__ = ("_ledger", "computations", "large", "targets")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.large: Final = LargeAssignments(ledger)
        self.targets: Final = Targets(ledger)
        #: by the kind of their timers
        self.computations: Final = {
            TARGET: self.targets.computations,
            ASSIGNMENT: self.large.computations,
        }

    # -- subscriptions and topics

    def refresh(self, group: ConsumerGroup, changed: bool) -> None:
        """Raise the group epoch if members' subscriptions have `changed`, or the topics that they match.

        Regular expressions are resolved in a turn of their own, as in Kafka: members that join one after the
        other get their first partitions from one target, instead of the first member's revoked again.
        """
        env = self._ledger.env
        if self._is_outdated(group):
            self._ledger.timers.schedule((PATTERNS, group.id), 0)
        if changed or group.image_offset != env.image.offset:
            changed |= self._forget_regexes(group)
            self._compare_topics(group, changed)

    def _compare_topics(self, group: ConsumerGroup, changed: bool) -> None:
        image = self._ledger.env.image
        group.image_offset = image.offset
        topics_hash = group.hash_topics(image)
        if changed or topics_hash != group.metadata_hash:
            self.bump(group, topics_hash)

    def bump(self, group: ConsumerGroup, topics_hash: int) -> None:
        self._ledger.write(
            ConsumerGroupMetadataKey(group_id=group.id),
            ConsumerGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=topics_hash),
        )

    # -- regular expressions

    def _forget_regexes(self, group: ConsumerGroup) -> bool:
        """Remove regular expressions without a subscriber. Returns true if there were any."""
        unused = [regex for regex in group.regexes if regex not in group.patterns]
        for regex in unused:
            self._ledger.write(
                ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex), None
            )
        return bool(unused)

    def _is_outdated(self, group: ConsumerGroup) -> bool:
        """Returns true if an expression must be resolved: it is new, or topics or rights may have changed.

        Without a heartbeat since the group was loaded, the rights of its members are unknown.
        """
        if not group.patterns or group.may_describe is None or group.is_resolving:
            return False
        interval_ms = self._ledger.env.settings.consumer_regex_refresh_ms
        return (
            group.resolved_offset != self._ledger.env.image.offset
            or self._ledger.now_ms - group.resolved_ms > interval_ms
            or bool(group.patterns.keys() - group.regexes.keys())
        )

    def resolve_patterns(self, group: ConsumerGroup) -> None:
        """Have the regular expressions of a group resolved by a worker: an effect."""
        if not self._is_outdated(group):
            return
        assert group.may_describe is not None
        group.is_resolving = True
        self._ledger.outbox.effects.append(
            ResolveTopicRegexes(
                group.id, tuple(sorted(group.patterns)), self._ledger.env.image.offset, group.may_describe
            )
        )

    def patterns_resolved(
        self, group: ConsumerGroup, effect: ResolveTopicRegexes, found: Mapping[str, Collection[str]]
    ) -> None:
        """The topics that regular expressions match, by expression: the outcome of the effect."""
        group.is_resolving = False
        group.resolved_offset, group.resolved_ms = effect.image_offset, self._ledger.now_ms
        changed = self._forget_regexes(group)
        existing = self._ledger.env.image.topics
        for regex, topics in sorted(found.items()):
            known = group.regexes.get(regex)
            if regex not in group.patterns or (known is not None and known.topics == set(topics)):
                continue
            # A deleted topic has raised the epoch already.
            changed |= known is None or known.topics & existing.keys() != set(topics)
            self._ledger.write(
                ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex),
                ConsumerGroupRegularExpressionValue(
                    topics=sorted(topics), version=effect.image_offset, timestamp=self._ledger.now_ms
                ),
            )
        self._compare_topics(group, changed)
        if self._is_outdated(group):
            # A member has subscribed to another expression meanwhile, or topics have changed.
            self._ledger.timers.schedule((PATTERNS, group.id), 0)

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
        if self.large.write(group, member):
            self._expect_revocation(group, member)
            return
        image, target = self._ledger.env.image, group.target_of(member)
        is_large = self.large.is_large(member, target) and not stays(member, group.assignment_epoch, owned)
        if is_large and self.large.computations.is_running(group):
            return
        # Not those of a member that has no partitions, and gets none: it may subscribe to many topics.
        known = group.known_topics_of(member, image) if target or member.assigned else ()
        subscribed = {image.topics[name].id for name in known}
        if is_large:
            self.large.begin(group, member, subscribed, owned)
            return
        value = next_assignment(
            member,
            target_epoch=group.assignment_epoch,
            target=target,
            subscribed=subscribed,
            subscription_changed=subscription_changed,
            owned=owned,
            owners=group.owners,
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
            (group.assignment_epoch < group.epoch and not group.has_refused_target)
            or member.state is MemberState.UNRELEASED
            or self.large.is_preparing(group, member)
            or group.is_resolving
            or self._is_outdated(group)
            or bool(member.regex and member.regex not in group.regexes)
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
