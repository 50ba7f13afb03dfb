"""What goes wrong: with a file, with calls to the file system, with a server.

Each name is imported when it is asked for: to break a file takes neither pyfakefs nor a server.
One word is for one harm: what a `ShardState` calls ``flipped``, a `DamageKind` and a `HubFault`
call so too. Planned faults come when ``match``, ``nth`` and ``times`` say.
"""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)
