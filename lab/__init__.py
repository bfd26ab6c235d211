"""Other people's software, from package registries: what `conformance` and `bench` measure the broker with.

Everything lands in one git-ignored folder (`.lab`, or wherever `PENSTOCK_LAB` points) and is built once: a
stamp beside each build names its recipe, so that a changed recipe builds again and an unchanged one does not.
Users of Penstock need none of it. A tool that is not on the machine (npm, a C compiler, Maven) raises
`MissingTool`, and the caller skips what needs it, in one clear line.
"""

from lab.home import LabError, MissingTool, lab_root

__all__ = ["LabError", "MissingTool", "lab_root"]
