"""Which files below a directory a pattern means, found so that none is left out in silence.

`pathlib.Path.glob` takes a directory that may not be listed for an empty one, and so a plan would
be made of a part of the corpus. Here that is an error.
"""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence

from shardproof._base.messages import quoted
from shardproof._base.opening import is_directory, is_regular

__all__ = ["files_below"]

_ANYWHERE = "**"
_HAS_PATTERN = re.compile(r"[*?\[]")


def files_below(root: str, pattern: str) -> list[str]:
    """Return the relative paths of the regular files that a pattern means, sorted.

    Files and directories whose names begin with a dot are left out. Links to files count, and so do
    links to directories, but not where the pattern says ``**``.

    Args:
        root: The directory; where there is none, there are no files.
        pattern: Parts between slashes. ``*`` is any text, ``?`` any character, ``[abc]`` one of
            these, ``[!abc]`` none of them; ``**`` is any number of directories, none included.

    Raises:
        ValueError: No pattern, or an absolute one.
        OSError: A directory could not be listed, or a file not be looked at.
    """
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if not parts or pattern.startswith("/"):
        problem = "expected a pattern relative to the directory"
        raise ValueError(f"pattern: {problem}, such as '**/*.txt', found {quoted(pattern)}")
    if pattern.endswith("/") or not is_directory(root):
        return []
    parts += ["*"] if parts[-1] == _ANYWHERE else []
    names = set(_matching(root, parts))
    return sorted(name for name in names if is_regular(os.path.join(root, name)))


def _matching(root: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield what is below a directory and fits; some of it more than once.

    Several ``**`` lead to one place by many ways, of which one is gone.
    """
    waiting, seen = [("", 0)], set()
    while waiting:
        place, n = waiting.pop()
        if (place, n) in seen:
            continue
        seen.add((place, n))
        if parts[n] == _ANYWHERE:
            waiting += [(place, n + 1), *((below, n) for below in _directories(root, place))]
            continue
        paths = [os.path.join(place, name) for name in _fitting(root, place, parts[n])]
        if n + 1 == len(parts):
            yield from paths
        else:
            waiting += [(path, n + 1) for path in paths if is_directory(os.path.join(root, path))]


def _fitting(root: str, place: str, part: str) -> list[str]:
    """Return the names in a directory that fit a part of a pattern, or the part itself if plain."""
    if _HAS_PATTERN.search(part) is None:
        return [] if part.startswith(".") else [part]
    fits = re.compile(fnmatch.translate(part)).match
    return [entry.name for entry in _entries(root, place) if fits(entry.name)]


def _directories(root: str, place: str) -> list[str]:
    """Return the directories in a directory; links to some are none."""
    found = [entry for entry in _entries(root, place) if entry.is_dir(follow_symlinks=False)]
    return [os.path.join(place, entry.name) for entry in found]


def _entries(root: str, place: str) -> list["os.DirEntry[str]"]:
    directory = os.path.join(root, place)
    try:
        with os.scandir(directory) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        raise _unlisted(error, directory) from error


def _unlisted(error: OSError, directory: str) -> OSError:
    said = f"{error.strerror}: the directory could not be listed, and what is in it may belong to"
    return type(error)(
        error.errno, f"{said} the plan; make it readable, or leave it out by the pattern", directory
    )
