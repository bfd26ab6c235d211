"""The chart and the image on a real Kubernetes: what operators do to a cluster, under load, and a count.

`scenario.py` has the steps, `judging.py` decides what a count proves, and `manifests.py` has the pods of the
clients; the latter two are without I/O. The cluster is made by `lab.kubernetes`, or is one that exists.
"""
