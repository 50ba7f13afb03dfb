"""The on-disk formats: which there are, which one a directory is of, what is expected in it.

Imported when they are asked for: pytest's plugin enters this room for `signs` alone.
"""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)
