"""The on-disk formats: which there are, which one a directory is of, what it promises.

Imported when they are asked for: pytest's plugin enters this room for `signs` alone.
"""

from shardproof._base.imports import attached

TYPE_CHECKING = False  # that of typing takes longer than all else here
if TYPE_CHECKING:
    from shardproof.formats._flat import flat
    from shardproof.formats._format import Format, SignerKey
    from shardproof.formats._opened import opened
    from shardproof.formats._registry import Located, claims, detect, get, locate, names, stating
    from shardproof.formats._sealed import LISTS, parts_of, proofs_in, read_manifest, with_digests
    from shardproof.formats._signed import key_at, read_signed
    from shardproof.formats._tree import find
    from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = [
    "LISTS",
    "Contradiction",
    "Format",
    "Located",
    "Manifest",
    "Mismatch",
    "PromisedFile",
    "SignerKey",
    "claims",
    "detect",
    "find",
    "flat",
    "get",
    "key_at",
    "locate",
    "names",
    "opened",
    "parts_of",
    "proofs_in",
    "read_manifest",
    "read_signed",
    "stating",
    "with_digests",
]

_MODULES = {
    "_counted": ("Contradiction", "Mismatch"),
    "_flat": ("Manifest", "PromisedFile", "flat"),
    "_format": ("Format", "SignerKey"),
    "_opened": ("opened",),
    "_registry": ("Located", "claims", "detect", "get", "locate", "names", "stating"),
    "_sealed": ("LISTS", "parts_of", "proofs_in", "read_manifest", "with_digests"),
    "_signed": ("key_at", "read_signed"),
    "_tree": ("find",),
}
_HOMES = {name: module for module, names_ in _MODULES.items() for name in names_}
__getattr__, __dir__ = attached(__name__, _HOMES)
