"""Shards directories that prove themselves before a machine-learning job reads them.

::

    import shardproof

    shardproof.validate("/scratch/me/saev/shards/abc12345").raise_for_findings()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardproof.errors import (
        ManifestError,
        ManifestNotFoundError,
        ShardproofError,
        ShardValidationError,
    )
    from shardproof.report import Finding, FindingKind, Level, Report
    from shardproof.saev import Metadata, Shard, ShardInfo
    from shardproof.validation import validate

__all__ = [
    "Finding",
    "FindingKind",
    "Level",
    "ManifestError",
    "ManifestNotFoundError",
    "Metadata",
    "Report",
    "Shard",
    "ShardInfo",
    "ShardValidationError",
    "ShardproofError",
    "validate",
]

__version__ = "0.1.0"

_HOME = {
    "Finding": "report",
    "FindingKind": "report",
    "Level": "report",
    "ManifestError": "errors",
    "ManifestNotFoundError": "errors",
    "Metadata": "saev",
    "Report": "report",
    "Shard": "saev",
    "ShardInfo": "saev",
    "ShardValidationError": "errors",
    "ShardproofError": "errors",
    "validate": "validation",
}


def __getattr__(name: str) -> Any:
    # PEP 562: `import shardproof` costs a millisecond, and each name what it needs.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when a name is asked for

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
