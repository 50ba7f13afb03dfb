"""Shards directories that prove themselves before a machine-learning job reads them.

::

    import shardproof

    shardproof.validate("/scratch/me/saev/shards/abc12345").raise_for_findings()
"""

import os as _os

if _os.name == "nt":
    import _shardproof_entries

    raise ImportError(_shardproof_entries.UNSUPPORTED, name=__name__)

from shardproof._base import imports as _imports

__version__ = "0.1.0"

_NAMES = {
    "": (
        *("checkpoint", "datasets", "distributed", "errors", "fetching", "forecasting", "formats"),
        *("loaders", "receipts", "saev", "staging", "testing"),
    ),
    "checkpoint": (
        "MultiShardCheckpointFormat",
        "MultiShardLoader",
        "MultiShardSaver",
        "ShardFileVerifier",
        "VerificationResult",
        "latest_checkpoint",
    ),
    "datasets": (
        "ShardedDatasetManager",
        "SharedShardedDataset",
        "hf_load_dataset_sharded",
        "resolve_resume_plan",
    ),
    "errors": (
        "CheckpointError",
        "CheckpointNotFoundError",
        "ClaimLostError",
        "FetchError",
        "FetchTimeoutError",
        "ManifestError",
        "ManifestNotFoundError",
        "ManifestPermissionError",
        "RankError",
        "ReceiptError",
        "RevisionError",
        "SealError",
        "ShardClaimedError",
        "ShardCompletedError",
        "ShardReadError",
        "ShardproofError",
        "SourceError",
        "UnsyncedError",
    ),
    "fetching": ("ShardPrefetcher", "fetch"),
    "forecasting": ("Forecast", "forecast"),
    "loaders": ("Batch", "IndexedDataset", "OrderedDataLoader", "ShuffledDataLoader"),
    "receipts": ("ReceiptStore",),
    "repairing": ("Repair", "repair"),
    "report": ("Finding", "FindingKind", "Level", "Report", "ShardValidationError"),
    "saev": ("Metadata", "Shard", "ShardInfo"),
    "sealing": ("Seal", "seal"),
    "staging": ("stage",),
    "validation": ("validate",),
}
"""Which module has which names; those of the first line are modules."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

__getattr__, __dir__ = _imports.attached(__name__, _HOMES)
