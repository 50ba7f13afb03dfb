"""One check, or one answer, for all ranks of a job: by torch, MPI or another engine."""

from shardproof.distributed._checks import Spread, check_together, validate
from shardproof.distributed._groups import Group, group_of

__all__ = ["Group", "Spread", "check_together", "group_of", "validate"]
