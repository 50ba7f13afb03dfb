"""What goes wrong: with a file, with calls to the file system, with a server.

Each name is imported when it is asked for: to break a file takes neither pyfakefs nor a server.
One word is for one harm: what a `ShardState` calls ``flipped``, a `DamageKind` and a `HubFault`
call so too. Planned faults come when ``match``, ``nth`` and ``times`` say.
"""

from shardproof._base.imports import attached

_NAMES = {
    "fake": ["NotFakedError", "fake_shards_dir"],
    "file_damage": ["Damage", "DamageKind", "DamageRecord", "damage", "damaged"],
    "file_system": [
        *("OPERATIONS", "Call", "FileSystemFaults", "MakeShardFaults", "Outcome", "PlannedFault")
    ],
    "hub": ["Hub", "HubFault", "HubRequest", "serve_hub"],
}

_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

__getattr__, __dir__ = attached(__name__, _HOMES)
