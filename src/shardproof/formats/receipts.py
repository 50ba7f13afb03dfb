"""Plan directories of a data-prep run: what ``plan.json`` and ``receipts/`` promise."""

from shardproof.formats import signs
from shardproof.formats._format import Format
from shardproof.manifest import Manifest

__all__ = ["ReceiptsFormat"]


class ReceiptsFormat(Format):
    """The outputs of a data-prep run, of which each completed shard has a receipt."""

    name, manifest_file, further_parts = signs.RECEIPTS
    description = "outputs of a data-prep run, with a receipt for each completed shard"

    def recognizes(self, path: str) -> bool:
        """Return whether a directory is a plan's, be it with its plan or only with receipts."""
        return signs.has_receipts(path)

    def read_manifest(self, path: str) -> Manifest:
        """Return what the receipts promise."""
        # It takes 20 ms to import: only where there are receipts.
        from shardproof.receipts.verdict import read_manifest  # noqa: PLC0415

        return read_manifest(path)
