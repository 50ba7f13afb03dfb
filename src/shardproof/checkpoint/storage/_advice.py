"""What to type instead of a path that is no prefix of a checkpoint."""

from shardproof._base.messages import joined, quoted
from shardproof.checkpoint.format._layout import metadata_name
from shardproof.checkpoint.storage._prefixes import prefixes_in
from shardproof.checkpoint.storage._storage import Place
from shardproof.checkpoint.storage._unfinished import unfinished_at, unfinished_of

__all__ = ["advice"]

_SHOWN = 3
_LONGEST_PATH = 4096


def advice(place: Place) -> str:
    """Return what to do where there is no metadata file for a prefix; at best what to type."""
    if place.name.endswith(metadata_name("")):
        prefix = place.path.removesuffix(metadata_name(""))
        return f"expected a prefix, found the name of a metadata file: give {_shown(place, prefix)}"
    try:
        return _what_is_inside(place) or joined([*map(str, unfinished_at(place))])
    except OSError:  # that there is no such file was seen, all the same
        return ""


def _what_is_inside(place: Place) -> str:
    try:
        prefixes = prefixes_in(place.path, place.storage)
    except NotADirectoryError:
        return ""
    there = [_shown(place, found.path) for found in prefixes.committed]
    if there:
        more = f" (or another of {len(there)})" if len(there) > _SHOWN else ""
        shown = " or ".join(there[:_SHOWN])
        return f"expected a prefix, found a directory: give {shown}{more}"
    unfinished = [str(step) for step in unfinished_of(prefixes)]
    return f"it is a directory without a checkpoint: {unfinished[0]}" if unfinished else ""


def _shown(place: Place, path: str) -> str:
    return quoted(place.storage.address(path), _LONGEST_PATH)
