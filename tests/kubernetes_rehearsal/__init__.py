"""The rehearsal on Kubernetes, as far as it needs no cluster."""
