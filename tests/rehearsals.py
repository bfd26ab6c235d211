"""The tests in which a broker logs an event of the runbook (docs/cluster.md), and is brought back from there.

`conftest` records the events of each of these tests, and fails the test if the event was not logged. A test
of `tests/docs` fails if an event of the runbook has no row, or if a row names no test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Final

from penstock.broker.base import logs

__all__ = ["IN_PROCESSES", "REHEARSALS", "events_of", "recorded_events"]

#: file -> test -> the events that each parameter set of the test logs, or the named one
REHEARSALS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tests/broker/app/test_lifecycle.py": {
        "test_a_voter_that_waits_for_a_majority_logs_it": ("waiting_for_majority",),
        "test_leaders_move_away_from_a_failed_directory": ("flush_failed",),
    },
    "tests/broker/app/test_quarantine_expiry.py": {
        "test_a_damaged_entry_is_reported_and_stays": ("quarantine_entry_damaged",),
    },
    "tests/broker/coordinators/test_damaged_coordinators.py": {
        "test_records_that_no_replica_has_are_given_up": ("coordinator_records_lost",),
        "test_any_damage_is_found_and_repaired": (
            "coordinator_loaded",
            "coordinator_log_damaged",
        ),
    },
    "tests/broker/handlers/test_find_coordinator.py": {
        "test_without_enough_brokers_for_the_offsets_topic_there_is_no_coordinator": ("no_coordinator",),
    },
    "tests/broker/healing/test_comparison.py": {
        "test_the_minority_is_replaced_even_if_it_leads": ("replicas_differ",),
        "test_verdicts_from_before_a_restart_are_found_again": ("replica_fetch_failed",),
    },
    "tests/broker/healing/test_full_directories.py": {
        "test_a_write_waits_but_a_moment_for_a_follower_whose_disk_is_full": (
            "directory_full",
            "directory_has_room",
            "replica_not_followed",
        ),
        "test_with_all_disks_full_the_high_watermark_is_known": ("high_watermark_recovered",),
    },
    "tests/broker/healing/test_hole_filling.py": {
        "test_segments_lost_after_a_crash_are_fetched_again": ("replica_unclean",),
        "test_segments_lost_while_all_brokers_were_stopped_are_fetched_again": ("controller_unavailable",),
    },
    "tests/broker/healing/test_log_starts.py": {
        "test_no_follower_adopts_it_and_the_records_before_it_are_copied_back": ("log_start_unexplained",),
    },
    "tests/broker/healing/test_repair.py": {
        "test_a_flipped_bit_is_found_never_served_and_healed": (
            "corruption_found",
            "corruption_repaired",
        ),
        "test_damage_that_no_replica_can_repair_stays_reported": ("repair_failed",),
    },
    "tests/broker/healing/test_transaction_repair.py": {
        "test_a_transaction_index_that_was_lost_while_the_broker_was_stopped_is_rebuilt": (
            "transaction_index_rebuilt",
        ),
        "test_aborted_records_stay_hidden_after_a_repair": ("transactions_rebuilt",),
    },
    "tests/broker/node/test_clock_watch.py": {
        "test_a_damaged_file_counts_as_none": ("clock_file_refused",),
        "test_a_disk_that_refuses_the_file_is_logged_once": ("clock_not_saved",),
        "test_a_round_that_would_delete_everything_waits": ("retention_round_waits",),
        "test_a_change_is_logged_once": (
            "deletion_by_time_resumed",
            "deletion_by_time_suspended",
        ),
    },
    "tests/broker/node/test_clocks.py": {
        "test_two_days_ahead_with_a_retention_of_one_deletes_nothing[True-True]": ("broker_clock_right",),
        "test_two_days_behind_writes_go_on_elsewhere": ("broker_clock_wrong",),
    },
    "tests/broker/node/test_controller_loop.py": {
        "test_a_controller_alone_whose_disk_refuses_its_first_decision_begins_later": (
            "quorum_storage_failed",
        ),
    },
    "tests/broker/node/test_damaged_metadata.py": {
        "test_damage_that_is_found_while_a_node_leads_ends_the_node": ("quorum_failed",),
        "test_one_damaged_voter_of_three_fetches_its_metadata_again": ("metadata_damaged",),
    },
    "tests/broker/node/test_image_check.py": {
        "test_a_difference_is_logged_and_deletes_nothing": (
            "broker_metadata_agrees",
            "broker_metadata_diverged",
            "metadata_agrees",
            "metadata_diverged",
        ),
    },
    "tests/broker/node/test_metadata_log.py": {
        "test_leader_epochs_of_a_file_that_are_not_those_of_the_batches_are_replaced": (
            "leader_epochs_replaced",
        ),
    },
    "tests/broker/node/test_quorum_recovery.py": {
        "test_a_quorum_comes_back_from_one_voter_of_three": ("metadata_log_unclean",),
        "test_one_lost_quorum_state_heals_by_itself": (
            "vote_lost",
            "voter_replaced",
        ),
    },
    "tests/broker/node/test_rejoining.py": {
        "test_a_voter_that_was_not_replaced_in_time_rejoins_by_hand": ("voter_not_replaced",),
    },
    "tests/broker/node/test_replica_reports.py": {
        "test_a_failed_recovery_is_repeated_and_names_the_ends_that_differed": (
            "broker_fenced",
            "unclean_leader_elected",
            "unclean_recovery_done",
            "unclean_recovery_failed",
        ),
    },
    "tests/broker/node/test_unclean_recovery.py": {
        "test_a_leader_is_elected_when_the_last_replica_is_back_and_not_before": ("unclean_recovery_waits",),
        "test_a_topic_that_accepts_losses_truncates_the_returned_leader": (
            "replica_truncated",
            "unclean_leader",
        ),
    },
    "tests/broker/replica/test_offset_gaps.py": {
        "test_a_follower_refuses_a_gap_and_the_leader_checks_its_segment": ("offset_gap_refused",),
    },
    "tests/broker/replica/test_damaged_followers.py": {
        "test_committed_records_behind_a_lost_sector_are_kept_and_fetched_again": ("committed_records_cut",),
        "test_a_disk_that_refuses_the_truncation_is_offline_until_a_restart": ("corruption_not_cut",),
        "test_damage_above_the_high_watermark_is_truncated_and_fetched_again": ("corruption_replaced",),
    },
    "tests/broker/replica/test_data_directories.py": {
        "test_partitions_of_an_unmounted_directory_wait_for_it_and_are_not_recreated": (
            "manifests_disagree",
        ),
    },
    "tests/broker/replica/test_follower_quarantine.py": {
        "test_a_follower_sets_its_log_aside_when_the_leaders_log_starts_behind_its_end": (
            "replica_set_aside",
        ),
    },
    "tests/broker/replica/test_foreign_files.py": {
        "test_a_partition_that_may_not_be_read_is_offline_alone": ("partition_offline",),
        "test_foreign_files_among_topics_are_ignored_with_one_line": ("foreign_files_ignored",),
    },
    "tests/broker/replica/test_manifest.py": {
        "test_a_damaged_manifest_is_refused_and_nothing_is_lost": ("manifest_refused",),
    },
    "tests/broker/replica/test_misplaced.py": {
        "test_a_renamed_folder_is_put_back": ("partition_misplaced",),
        "test_without_a_quarantine_folders_are_not_moved": (
            "misplaced_partitions_ignored",
            "stray_partitions_ignored",
        ),
    },
    "tests/broker/replica/test_stored_partitions.py": {
        "test_a_folder_whose_identity_cannot_be_written_is_used_and_identified_later": (
            "partition_not_identified",
        ),
        "test_damaged_checkpoints_are_reported_and_never_applied": ("checkpoint_damaged",),
        "test_files_of_a_topic_that_is_not_known_are_set_aside": ("partitions_quarantined",),
    },
    "tests/broker/request/test_topic_creator.py": {
        "test_a_topic_with_more_replicas_than_brokers_is_not_created": ("topic_not_created",),
    },
}
#: the same for brokers in processes of their own: the test reads the events in the broker's log
IN_PROCESSES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tests/broker/base/test_descriptors.py": {
        "test_a_broker_with_few_descriptors_serves_and_recovers": (
            "descriptor_limit_low",
            "descriptors_exhausted",
        ),
    },
}


def events_of(test: str) -> set[str]:
    """The events that a test, by its pytest id, must log."""
    path, _, name = test.partition("::")
    tests = REHEARSALS.get(path, {})
    return {*tests.get(name, ()), *tests.get(name.partition("[")[0], ())}


class _Recording(logs.Logger):
    """A logger that also records its events. Tests may replace its writers meanwhile."""

    __slots__ = ()
    seen: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return partial(_record, found) if name in logs.LEVELS else found


def _record(write: Any, event: str, **fields: Any) -> None:
    _Recording.seen.add(event)
    write(event, **fields)


@contextmanager
def recorded_events() -> Iterator[set[str]]:
    """Record the events that brokers in this process log, at every level, and pass them on."""
    loggers = list(logs._loggers.values())
    seen: set[str] = set()
    _Recording.seen = seen
    for logger in loggers:
        logger.__class__ = _Recording
    try:
        yield seen
    finally:
        for logger in loggers:
            logger.__class__ = logs.Logger
