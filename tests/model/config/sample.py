"""A config file with sections."""

from __future__ import annotations

SAMPLE = """
broker:
  id: 1
  host: "0.0.0.0"
  port: 9092
  data_dir: "/data/message-queue"

cluster:
  bootstrap_servers:
    - "broker-1:9092"
    - "broker-2:9092"
    - "broker-3:9092"

storage:
  segment_size: "1GB"
  segment_time: "24h"
  retention_time: "7d"
  retention_size: "100GB"
  fsync_interval: "1s"

performance:
  max_connections: 10000
  socket_send_buffer: "100KB"
  socket_receive_buffer: "100KB"
  max_message_size: "1MB"
  batch_size: "16KB"
  linger_time: "5ms"

replication:
  default_replication_factor: 3
  min_insync_replicas: 2
  replica_lag_time_max: "10s"
  replica_lag_records_max: 1000

topics:
  gpu-telemetry:
    partitions: 12
    replication_factor: 3
    retention_time: "30d"
    retention_size: "500GB"
    compression_type: "snappy"
    cleanup_policy: "delete"
    segment_size: "1GB"

  system-metrics:
    partitions: 6
    replication_factor: 2
    retention_time: "7d"
    compression_type: "gzip"
"""
