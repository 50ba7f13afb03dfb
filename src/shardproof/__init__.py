"""Shards directories that prove themselves before a machine-learning job reads them.

::

    import shardproof

    shardproof.validate("/scratch/me/saev/shards/abc12345").raise_for_findings()
"""

from shardproof import _real_imports

TYPE_CHECKING = False  # that of typing takes ten times as long as all else until `take_signals`
if TYPE_CHECKING:
    from typing import Any

    from shardproof.checkpoint import (
        MultiShardCheckpointFormat,
        MultiShardLoader,
        MultiShardSaver,
        ShardFileVerifier,
        VerificationResult,
        latest_checkpoint,
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
        ShardClaimedError,
        ShardCompletedError,
        ShardproofError,
        ShardReadError,
        ShardValidationError,
        SourceError,
        UnsyncedError,
    )
    from shardproof.loaders import (
        Batch,
        IndexedDataset,
        OrderedDataLoader,
        ShuffledDataLoader,
    )
    from shardproof.prefetch import (
        ShardedDatasetManager,
        ShardPrefetcher,
        SharedShardedDataset,
        fetch_shard,
        hf_load_dataset_sharded,
        resolve_resume_plan,
    )
    from shardproof.receipts import ReceiptStore
    from shardproof.report import Finding, FindingKind, Level, Report
    from shardproof.saev import Metadata, Shard, ShardInfo
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
    "Report",
    "RevisionError",
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
    "fetch_shard",
    "hf_load_dataset_sharded",
    "latest_checkpoint",
    "resolve_resume_plan",
    "stage",
    "validate",
]

__version__ = "0.1.0"

_real_imports.install()

_HOME = {
    "Batch": "loaders",
    "CheckpointError": "errors",
    "CheckpointNotFoundError": "errors",
    "ClaimLostError": "errors",
    "FetchError": "errors",
    "FetchTimeoutError": "errors",
    "Finding": "report",
    "FindingKind": "report",
    "IndexedDataset": "loaders",
    "Level": "report",
    "ManifestError": "errors",
    "ManifestNotFoundError": "errors",
    "ManifestPermissionError": "errors",
    "Metadata": "saev",
    "MultiShardCheckpointFormat": "checkpoint",
    "MultiShardLoader": "checkpoint",
    "MultiShardSaver": "checkpoint",
    "OrderedDataLoader": "loaders",
    "ReceiptError": "errors",
    "ReceiptStore": "receipts",
    "Report": "report",
    "RevisionError": "errors",
    "Shard": "saev",
    "ShardClaimedError": "errors",
    "ShardCompletedError": "errors",
    "ShardFileVerifier": "checkpoint",
    "ShardInfo": "saev",
    "ShardPrefetcher": "prefetch",
    "ShardReadError": "errors",
    "ShardValidationError": "errors",
    "ShardedDatasetManager": "prefetch",
    "ShardproofError": "errors",
    "SharedShardedDataset": "prefetch",
    "ShuffledDataLoader": "loaders",
    "SourceError": "errors",
    "UnsyncedError": "errors",
    "VerificationResult": "checkpoint",
    "fetch_shard": "prefetch",
    "hf_load_dataset_sharded": "prefetch",
    "latest_checkpoint": "checkpoint",
    "resolve_resume_plan": "prefetch",
    "stage": "staging",
    "validate": "validation",
}


def __getattr__(name: str) -> "Any":
    # PEP 562: `import shardproof` costs a millisecond, and each name what it needs.
    if name not in _HOME:
        from shardproof._messages import quoted  # noqa: PLC0415 - only for an error

        raise AttributeError(f"module 'shardproof' has no attribute {quoted(name)}")
    from importlib import import_module  # noqa: PLC0415 - only when a name is asked for

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
