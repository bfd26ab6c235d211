"""CRC-32C, by the C extension of the `crc32c` package.

The package looks up its own version when it is imported, which imports much of the standard library (e-mail,
archives, resources): a tenth of a broker's start. The extension alone does not.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Final, cast

__all__ = ["crc32c"]


def _find() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = extension.loader.create_module(extension)
            if module is not None:
                extension.loader.exec_module(module)
                return cast("Callable[..., int]", module.crc32c)
    # Laid out in another way than the releases we know: then its own import has to do.
    import crc32c as whole

    return cast("Callable[..., int]", whole.crc32c)


#: `crc32c(data, value=0)`: the checksum of `data`, or of what had the checksum `value` followed by it
crc32c: Final = _find()
