"""Operations on clusters: broker folders and processes on this machine, status, membership, reassignment.

May import the shared helpers of `penstock.cli`, never a command. Called by the commands `cluster`, `broker`,
`partition` and `quorum`.
"""
