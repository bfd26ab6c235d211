"""Requests to the brokers of a cluster, in the name of one user."""
