"""saev's shards directories: what ``shards.json`` and ``metadata.json`` promise."""

from shardproof.formats import signs
from shardproof.formats._format import Format
from shardproof.manifest import Manifest
from shardproof.saev import read_manifest

__all__ = ["SaevFormat"]


class SaevFormat(Format):
    """Activations of a vision model, as saev writes them."""

    name, manifest_file, further_parts = signs.SAEV
    description = "activations of a vision model, as saev writes them"

    def recognizes(self, path: str) -> bool:
        """Return whether a directory is saev's, be it whole or half-written."""
        return signs.has_saev(path)

    def read_manifest(self, path: str) -> Manifest:
        """Return what ``shards.json`` and ``metadata.json`` promise."""
        return read_manifest(path)
