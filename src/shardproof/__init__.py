"""Shards directories that prove themselves before a machine-learning job reads them.

::

    import shardproof

    shardproof.validate("/scratch/me/saev/shards/abc12345").raise_for_findings()
"""

from shardproof._base import imports as _imports

TYPE_CHECKING = False  # to import typing's takes ten times as long as all else until `take_signals`
if TYPE_CHECKING:
    from shardproof import checkpoint as checkpoint
    from shardproof import datasets as datasets
    from shardproof import errors as errors
    from shardproof import fetching as fetching
    from shardproof import formats as formats
    from shardproof import loaders as loaders
    from shardproof import receipts as receipts
    from shardproof import saev as saev
    from shardproof import staging as staging
    from shardproof import testing as testing
    from shardproof.checkpoint import (
        MultiShardCheckpointFormat,
        MultiShardLoader,
        MultiShardSaver,
        ShardFileVerifier,
        VerificationResult,
        latest_checkpoint,
    )
    from shardproof.datasets import (
        ShardedDatasetManager,
        SharedShardedDataset,
        hf_load_dataset_sharded,
        resolve_resume_plan,
    )
    from shardproof.errors import (
        CheckpointError,
        CheckpointNotFoundError,
        ClaimLostError,
        FetchError,
        FetchTimeoutError,
        ManifestError,
        ManifestNotFoundError,
        ManifestPermissionError,
        ReceiptError,
        RevisionError,
        SealError,
        ShardClaimedError,
        ShardCompletedError,
        ShardproofError,
        ShardReadError,
        SourceError,
        UnsyncedError,
    )
    from shardproof.fetching import ShardPrefetcher, fetch
    from shardproof.loaders import (
        Batch,
        IndexedDataset,
        OrderedDataLoader,
        ShuffledDataLoader,
    )
    from shardproof.receipts import ReceiptStore
    from shardproof.repairing import Repair, repair
    from shardproof.report import Finding, FindingKind, Level, Report, ShardValidationError
    from shardproof.saev import Metadata, Shard, ShardInfo
    from shardproof.sealing import Seal, seal
    from shardproof.staging import stage
    from shardproof.validation import validate

__all__ = [
    "Batch",
    "CheckpointError",
    "CheckpointNotFoundError",
    "ClaimLostError",
    "FetchError",
    "FetchTimeoutError",
    "Finding",
    "FindingKind",
    "IndexedDataset",
    "Level",
    "ManifestError",
    "ManifestNotFoundError",
    "ManifestPermissionError",
    "Metadata",
    "MultiShardCheckpointFormat",
    "MultiShardLoader",
    "MultiShardSaver",
    "OrderedDataLoader",
    "ReceiptError",
    "ReceiptStore",
    "Repair",
    "Report",
    "RevisionError",
    "Seal",
    "SealError",
    "Shard",
    "ShardClaimedError",
    "ShardCompletedError",
    "ShardFileVerifier",
    "ShardInfo",
    "ShardPrefetcher",
    "ShardReadError",
    "ShardValidationError",
    "ShardedDatasetManager",
    "ShardproofError",
    "SharedShardedDataset",
    "ShuffledDataLoader",
    "SourceError",
    "UnsyncedError",
    "VerificationResult",
    "fetch",
    "hf_load_dataset_sharded",
    "latest_checkpoint",
    "repair",
    "resolve_resume_plan",
    "seal",
    "stage",
    "validate",
]

__version__ = "0.1.0"

_imports.install()

_HOME = {name: "errors" for name in __all__ if name.endswith("Error")} | {
    "Batch": "loaders",
    "Finding": "report",
    "FindingKind": "report",
    "IndexedDataset": "loaders",
    "Level": "report",
    "Metadata": "saev",
    "MultiShardCheckpointFormat": "checkpoint",
    "MultiShardLoader": "checkpoint",
    "MultiShardSaver": "checkpoint",
    "OrderedDataLoader": "loaders",
    "ReceiptStore": "receipts",
    "Repair": "repairing",
    "Report": "report",
    "Seal": "sealing",
    "Shard": "saev",
    "ShardFileVerifier": "checkpoint",
    "ShardInfo": "saev",
    "ShardPrefetcher": "fetching",
    "ShardValidationError": "report",
    "ShardedDatasetManager": "datasets",
    "SharedShardedDataset": "datasets",
    "ShuffledDataLoader": "loaders",
    "VerificationResult": "checkpoint",
    "fetch": "fetching",
    "hf_load_dataset_sharded": "datasets",
    "latest_checkpoint": "checkpoint",
    "repair": "repairing",
    "resolve_resume_plan": "datasets",
    "seal": "sealing",
    "stage": "staging",
    "validate": "validation",
}

_ROOMS = {
    "checkpoint",
    "datasets",
    "errors",
    "fetching",
    "formats",
    "loaders",
    "receipts",
    "saev",
    "staging",
    "testing",
}

_NOT_LISTED = {
    "Batch",
    "CheckpointNotFoundError",
    "ClaimLostError",
    "FetchTimeoutError",
    "ManifestNotFoundError",
    "ManifestPermissionError",
    "ReceiptStore",
    "Repair",
    "RevisionError",
    "Seal",
    "SealError",
    "ShardClaimedError",
    "ShardCompletedError",
    "SourceError",
    "UnsyncedError",
    "VerificationResult",
}
"""What completion at ``shardproof.`` leaves out, since the rooms have it too."""

__getattr__, _ = _imports.attached(__name__, _HOME | dict.fromkeys(_ROOMS, ""))


def __dir__() -> list[str]:
    return sorted((_HOME.keys() - _NOT_LISTED) | _ROOMS)
