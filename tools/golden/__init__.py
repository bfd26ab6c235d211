"""Data directories of released versions, which every later version must read.

`python -m tools.golden NAME [--commit COMMIT]` writes tests/golden/NAME.tar.xz and NAME.json: the data
directory of a broker of a commit (by default of this source), and what clients read from that broker.
`tests/golden` opens each directory and compares.
"""
