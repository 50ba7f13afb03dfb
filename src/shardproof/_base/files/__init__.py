"""Write whole or not at all; sweep leftovers. The only room that renames, fsyncs or unlinks.

Where only the last step fails, what was written is there, and that is said: `UnsyncedError`. Any
other error, or an interrupt, ends a write before its name is given, or is over what is whole.
"""

from shardproof._base.files._naming import (
    aside_name,
    is_aside,
    is_temporary,
    move,
    move_aside,
    move_new,
    move_whole,
    remove,
    remove_empty,
    remove_if,
    remove_tree,
    sweep_leftovers,
    temporary_name,
)
from shardproof._base.files._syncing import begin_to_sync, make_directories, sync, sync_names
from shardproof._base.files._writing import being_written, nameless, publish, write_at, write_whole
from shardproof._base.opening import telling_where

__all__ = [
    "aside_name",
    "begin_to_sync",
    "being_written",
    "is_aside",
    "is_temporary",
    "make_directories",
    "move",
    "move_aside",
    "move_new",
    "move_whole",
    "nameless",
    "publish",
    "remove",
    "remove_empty",
    "remove_if",
    "remove_tree",
    "sweep_leftovers",
    "sync",
    "sync_names",
    "telling_where",
    "temporary_name",
    "write_at",
    "write_whole",
]
