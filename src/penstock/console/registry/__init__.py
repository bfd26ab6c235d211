"""A schema registry with Confluent's REST API: its settings, requests to it, messages by its schemas."""
