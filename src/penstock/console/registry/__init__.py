"""A schema registry with Confluent's REST API, for pages: changes of it, messages by its schemas."""
