"""Expiry of samples: whole days go once the rollups are proven to have counted each of their samples.

`rule` decides, `proof` compares a day with its rollups, `removal` takes proven days out of the table, and
`job` runs all of it beside the pipeline's batches.
"""

from penstock.telemetry.expiry.rule import KEEP_MIN_MS

__all__ = ["KEEP_MIN_MS"]
