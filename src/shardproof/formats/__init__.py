"""The on-disk formats: which there are, which one a directory is of, what it promises.

Imported when they are asked for: pytest's plugin enters this room for `signs` alone.
"""

from shardproof._base.imports import attached

TYPE_CHECKING = False  # that of typing takes longer than all else here
if TYPE_CHECKING:
    from shardproof.formats._format import (
        Contradiction,
        Format,
        Manifest,
        Mismatch,
        PromisedFile,
    )
    from shardproof.formats._registry import Located, detect, get, locate, names

__all__ = [
    "Contradiction",
    "Format",
    "Located",
    "Manifest",
    "Mismatch",
    "PromisedFile",
    "detect",
    "get",
    "locate",
    "names",
]

_IN_REGISTRY = ("Located", "detect", "get", "locate", "names")
_HOMES = {name: "_registry" if name in _IN_REGISTRY else "_format" for name in __all__}
__getattr__, __dir__ = attached(__name__, _HOMES)
