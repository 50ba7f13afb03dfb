"""The on-disk formats: which there are, which one a directory is of, what is expected in it.

Imported when they are asked for: pytest's plugin enters this room for `signs` alone.
"""

from shardproof._base.imports import attached

_NAMES = {
    "_flat": ("Manifest", "ExpectedFile", "flat"),
    "_format": ("Format", "SignerKey"),
    "_jobs": ("Contradiction", "Mismatch"),
    "_near": ("described", "evidence"),
    "_reading": (
        *("LISTS", "fields_of", "key_at", "parts_of", "read_manifest", "read_signed"),
        "with_digests",
    ),
    "_registry": ("Located", "claims", "detect", "find", "get", "locate", "names", "stating"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

__getattr__, __dir__ = attached(__name__, _HOMES)
