"""The cluster's metadata: the image after all metadata records, and the controller's decisions on it.

Pure: a decision is a function of the image and a request that returns (records, result). The caller appends
the records to the metadata log and then applies them to the image; nothing else changes the image.

Imports: `reassignment`, `wire`, `security`, `quotas`, `timekeeping`, `model`.
Used by: the broker (the controller decides, every node applies), `groups`, and the command line.
"""
