"""Sample directories: described by one value, written, and judged by an oracle.

What every format has is in ``shardproof.testing``; what only one has, in the module of its name.
"""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)
