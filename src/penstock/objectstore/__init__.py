"""Object stores of S3, Google Cloud, Azure, and folders, as `penstock.ports.ObjectStore`.

`address` has the addresses and options of stores, `object_store` the adapter of the library obstore, and
`encrypted_store` objects that are encrypted.

Imports: `model`, `archive`, `encryption` and `ports`.
Used by: backups, the commands for archives, and brokers with tiered storage.
"""
