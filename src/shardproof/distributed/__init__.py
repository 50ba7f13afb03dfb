"""One check, or one answer, for all ranks of a job: by torch, MPI or another engine."""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)
