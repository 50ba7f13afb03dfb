"""Shards directories that prove themselves before a machine-learning job reads them.

::

    import shardproof

    shardproof.validate("/scratch/me/saev/shards/abc12345").raise_for_findings()
"""

import os as _os

if _os.name == "nt":
    import _shardproof_entries

    raise ImportError(_shardproof_entries.UNSUPPORTED, name=__name__)

from shardproof._base import imports as _imports

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = _imports.attached(__name__)
