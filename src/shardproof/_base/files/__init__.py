"""Write whole or not at all; sweep leftovers. The only room that renames, fsyncs or unlinks.

Where only the last step fails, what was written is there, and that is said: `UnsyncedError`. Any
other error, or an interrupt, ends a write before its name is given, or is over what is whole.
"""

from shardproof._base.files._naming import aside_name as aside_name
from shardproof._base.files._naming import is_aside as is_aside
from shardproof._base.files._naming import is_temporary as is_temporary
from shardproof._base.files._naming import move as move
from shardproof._base.files._naming import move_aside as move_aside
from shardproof._base.files._naming import move_new as move_new
from shardproof._base.files._naming import move_whole as move_whole
from shardproof._base.files._naming import remove as remove
from shardproof._base.files._naming import remove_empty as remove_empty
from shardproof._base.files._naming import remove_if as remove_if
from shardproof._base.files._naming import remove_tree as remove_tree
from shardproof._base.files._naming import sweep_leftovers as sweep_leftovers
from shardproof._base.files._naming import temporary_name as temporary_name
from shardproof._base.files._syncing import as_unsynced as as_unsynced
from shardproof._base.files._syncing import begin_to_sync as begin_to_sync
from shardproof._base.files._syncing import make_directories as make_directories
from shardproof._base.files._syncing import sync as sync
from shardproof._base.files._syncing import sync_names as sync_names
from shardproof._base.files._writing import being_written as being_written
from shardproof._base.files._writing import nameless as nameless
from shardproof._base.files._writing import publish as publish
from shardproof._base.files._writing import write_at as write_at
from shardproof._base.files._writing import write_whole as write_whole
from shardproof._base.opening import telling_where as telling_where
