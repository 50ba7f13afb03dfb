"""One check, or one answer, for all ranks of a job: over torch.distributed, MPI or another engine.

Imported when it is asked for, so that nothing of it is loaded where no ``group`` is given.
"""

from shardproof._base.imports import attached

_HOMES = {
    "Group": "_groups",
    "Spread": "_checks",
    "check_together": "_checks",
    "group_of": "_groups",
    "on_all_ranks": "calls",
    "validate": "_checks",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

__getattr__, __dir__ = attached(__name__, _HOMES)
