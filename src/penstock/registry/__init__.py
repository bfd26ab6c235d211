"""Schema registries with Confluent's REST API: settings, requests, schemas, and the prefix of messages.

A registry may be slow, huge or hostile: `http` bounds the time and the memory of each request. Schemas never
change, so their readers fetch each of them once.

Imports: `security` and `model`.
Used by: `penstock.client`, for serializers; `penstock.console`, for pages; `penstock.values`, for columns.
"""
