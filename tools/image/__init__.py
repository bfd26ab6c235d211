"""The container image: a root file system from this machine's own interpreter, as an OCI archive."""
