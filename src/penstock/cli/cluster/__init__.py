"""Operations on clusters: broker folders and processes on this machine, status, membership, reassignment.

Owns: operations on several brokers, on their folders and on their processes.
Imports: the shared helpers of `penstock.cli`, never a command.
Used by: the commands `cluster`, `broker`, `partition` and `quorum`.
"""
