"""What goes wrong: with a file, with calls to the file system, with a server.

::

    from shardproof.testing.faults import FileSystemFaults, damage, fake_shards_dir, serve_hub

Each name is imported when it is asked for: to break a file takes neither pyfakefs nor a server.
One word is for one harm: what a `ShardState` calls ``flipped``, a `DamageKind` and a `HubFault`
call so too. Planned faults come when ``match``, ``nth`` and ``times`` say.
"""

from typing import TYPE_CHECKING

from shardproof._base.imports import attached

if TYPE_CHECKING:
    from shardproof.testing.faults.fake import NotFakedError, fake_shards_dir
    from shardproof.testing.faults.file_damage import (
        Damage,
        DamageKind,
        DamageRecord,
        damage,
        damaged,
    )
    from shardproof.testing.faults.file_system import (
        OPERATIONS,
        Call,
        FileSystemFaults,
        Outcome,
        PlannedFault,
    )
    from shardproof.testing.faults.hub import Hub, HubFault, HubRequest, serve_hub

__all__ = [
    "OPERATIONS",
    "Call",
    "Damage",
    "DamageKind",
    "DamageRecord",
    "FileSystemFaults",
    "Hub",
    "HubFault",
    "HubRequest",
    "NotFakedError",
    "Outcome",
    "PlannedFault",
    "damage",
    "damaged",
    "fake_shards_dir",
    "serve_hub",
]

__getattr__, __dir__ = attached(
    __name__,
    {
        **dict.fromkeys(("NotFakedError", "fake_shards_dir"), "fake"),
        **dict.fromkeys(
            ("Damage", "DamageKind", "DamageRecord", "damage", "damaged"), "file_damage"
        ),
        **dict.fromkeys(
            ("OPERATIONS", "Call", "FileSystemFaults", "Outcome", "PlannedFault"), "file_system"
        ),
        **dict.fromkeys(("Hub", "HubFault", "HubRequest", "serve_hub"), "hub"),
    },
)
