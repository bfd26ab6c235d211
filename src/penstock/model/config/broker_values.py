"""The broker configs that are read in code, as attributes with their types.

An attribute is the name of a key with `_` for `.`. The type checker refuses names that are not declared here,
and a test compares each declaration with its key.
"""

from __future__ import annotations

__all__ = ["BrokerValues"]


class BrokerValues:
    """Values of broker configs. `BrokerConfig` sets them."""

    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    background_threads: int
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    default_replication_factor: int
    cordoned_log_dirs: tuple[str, ...]
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delegation_token_secret_key: str | None
    delete_topic_enable: bool
    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str
    fetch_max_bytes: int
    follower_replication_throttled_rate: int
    group_share_max_share_sessions: int
    initial_broker_registration_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    leader_replication_throttled_rate: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_flush_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    min_insync_replicas: int
    node_id: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    num_replica_fetchers: int
    offsets_commit_timeout_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    penstock_audit_aggregation_ms: int
    penstock_audit_checkpoint_ms: int
    penstock_audit_data_topics: tuple[str, ...]
    penstock_audit_data_window_ms: int
    penstock_audit_destination: tuple[str, ...]
    penstock_audit_events_per_second_max: int
    penstock_audit_file_bytes_max: int
    penstock_audit_file_count_max: int
    penstock_audit_file_path: str
    penstock_audit_hash_key_file: str
    penstock_audit_overflow: str
    penstock_audit_queue_events_max: int
    penstock_audit_sessions_enable: bool
    penstock_audit_syslog_address: str
    penstock_audit_syslog_keystore_location: str
    penstock_audit_syslog_truststore_location: str
    penstock_audit_topic_num_partitions: int
    penstock_audit_topic_replication_factor: int
    penstock_audit_topic_retention_ms: int
    penstock_authentication_failures_per_ip_max: int
    penstock_authentication_failures_window_ms: int
    penstock_authentication_timeout_ms: int
    penstock_balance: str
    penstock_balance_bytes_per_second: int
    penstock_balance_exclude_brokers: tuple[str, ...]
    penstock_balance_interval_seconds: int
    penstock_balance_new_brokers: bool
    penstock_balance_tolerance_percent: int
    penstock_bootstrap_port: int
    penstock_clock_confirmed_ms: int
    penstock_clock_grace_ms: int
    penstock_clock_skew_max_ms: int
    penstock_cluster_id: str | None
    penstock_console_addresses: tuple[str, ...]
    penstock_delete_after_consumption_interval_ms: int
    penstock_delete_finished_delay_ms: int
    penstock_disk_free_min_bytes: int
    penstock_disk_free_min_ratio: float
    penstock_encryption_aws_endpoint: str | None
    penstock_encryption_aws_region: str | None
    penstock_encryption_key_command: str | None
    penstock_encryption_key_id: str | None
    penstock_encryption_key_provider: str
    penstock_encryption_key_timeout_ms: int
    penstock_encryption_keys: str | None
    penstock_encryption_vault_address: str | None
    penstock_encryption_vault_ca_location: str | None
    penstock_encryption_vault_mount: str
    penstock_encryption_vault_namespace: str | None
    penstock_encryption_vault_token: str | None
    penstock_flush: str
    penstock_flush_interval_ms: int
    penstock_insecure_listeners_allow: bool
    penstock_internal_tls_mode: str
    penstock_log_format: str
    penstock_log_level: str
    penstock_machine: str | None
    penstock_memory: bool
    penstock_metrics_connections_max: int
    penstock_metrics_token: str | None
    penstock_mount: str | None
    penstock_mount_cache_bytes: int
    penstock_mount_store_config: str | None
    penstock_otlp_endpoint: str
    penstock_otlp_headers: str | None
    penstock_quarantine_retention_ms: int
    penstock_reassignment_throttle: str
    penstock_remote_log_address: str | None
    penstock_remote_log_cache_bytes: int
    penstock_remote_log_store_config: str | None
    penstock_request_read_timeout_ms: int
    penstock_scrub_bytes_per_second: int
    penstock_scrub_interval_ms: int
    penstock_self_healing_delay_ms: int
    penstock_self_healing_enable: bool
    penstock_self_healing_partitions_max: int
    penstock_slow_request_events_per_minute_max: int
    penstock_slow_request_ms: int
    penstock_trace_requests_per_second: int
    penstock_unauthenticated_connections_max: int
    penstock_unauthenticated_connections_max_per_ip: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    remote_fetch_max_wait_ms: int
    remote_log_manager_copier_thread_pool_size: int
    remote_log_manager_copy_max_bytes_per_second: int
    remote_log_manager_task_interval_ms: int
    remote_log_reader_max_pending_tasks: int
    remote_log_reader_threads: int
    remote_log_storage_system_enable: bool
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    request_timeout_ms: int
    sasl_mechanism_inter_broker_protocol: str
    share_coordinator_load_buffer_size: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    super_users: str
    telemetry_max_bytes: int
    transaction_partition_verification_enable: bool
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    unclean_leader_election_enable: bool
    unclean_recovery_strategy: str
    unclean_recovery_timeout_ms: int
