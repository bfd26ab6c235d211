"""Third-party software from package registries, for `conformance` and `bench`.

Everything lands in one git-ignored folder (`.lab`, or wherever `PENSTOCK_LAB` points) and is built once: a
stamp beside each build names its recipe, so that a changed recipe builds again and an unchanged one does not.
Users of Penstock need none of it. A tool that is not on the machine (npm, a C compiler, Maven) raises
`MissingTool`, and the caller skips the tests that need it, with one line that says so.
"""

from lab.home import LabError, MissingTool, lab_root

__all__ = ["LabError", "MissingTool", "lab_root"]
