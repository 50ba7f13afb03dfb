"""One check, or one answer, for all ranks of a job: by torch, MPI or another engine."""

from shardproof._base.imports import attached

_HOMES = {
    "Group": "_groups",
    "Spread": "_checks",
    "check_together": "_checks",
    "group_of": "_groups",
    "validate": "_checks",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

__getattr__, __dir__ = attached(__name__, _HOMES)
