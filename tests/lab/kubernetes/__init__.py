"""The cluster of Kubernetes on one machine, as far as it needs no programs."""
