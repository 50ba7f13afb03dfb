"""JSON that is refused, as an error about a checkpoint."""

from shardproof.errors import CheckpointError, ManifestError

__all__ = ["refusal"]


def refusal(error: ManifestError) -> CheckpointError:
    """Return what a refusal of JSON says, as an error about a checkpoint."""
    line = f"line {error.line}: " if error.line is not None else ""
    field = f"field {error.field}: " if error.field is not None else ""
    return CheckpointError(f"{line}{field}{error.problem}", path=error.path)
