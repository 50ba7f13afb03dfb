"""Which formats are known, which of them a directory is of, and which directories of a tree are."""

import contextlib
import fnmatch
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from shardproof import remote
from shardproof._base.addresses import remote_at
from shardproof._base.digest_lists import NAMES, lists_in
from shardproof._base.json import MAX_BYTES, read_bytes
from shardproof._base.messages import quoted, told, traced
from shardproof._base.names import open_root, real_root
from shardproof._base.opening import (
    TEMPORARY,
    is_directory,
    is_never_a_shard,
    is_there,
    listed_in,
    tree,
)
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.formats import hub, lists, plain, samples, signs, weights
from shardproof.formats._format import Format
from shardproof.formats._near import nearest
from shardproof.formats._reading import LISTS, permissions_told

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUP = "shardproof.formats"  # of entry points that are formats of others: name = module:FORMAT
_MOST_BELOW = 64  # directories that are looked at below one of no known format

OURS: dict[str, Format] = {
    form.name: form
    for room in (signs, samples, hub, weights, lists, plain)
    for form in room.FORMATS
}
"""Our formats by name, in the order in which they are listed."""

_ENDS = {
    form.name: {os.path.splitext(suffix)[1] or suffix for suffix in form.suffixes}
    for form in OURS.values()
}
"""The ends of names by which each may be known."""


class Located(NamedTuple):
    """Where something that has a manifest really is.

    Attributes:
        path: Real absolute path of the directory, or of the prefix of a checkpoint in it.
        root: Real absolute path of the directory.
    """

    path: str
    root: str


def names() -> list[str]:
    """Return the names of all formats: ours, and those of other packages.

    Example:
        >>> from shardproof import formats
        >>> formats.names()[:3]
        ['saev', 'receipts', 'checkpoint']
    """
    return [*OURS, *_others()]


def get(name: str) -> Format:
    """Return the format of a name; ``"bin:uint32"`` is that of numbers of a type, without a header.

    Raises:
        ValueError: No format has this name, or the package that has it can't be imported.

    Example:
        >>> from shardproof import formats
        >>> formats.get("saev").manifest_file
        'shards.json'
    """
    if name in OURS:
        return OURS[name]
    if name.startswith("bin:"):
        return plain.bin_of(name.removeprefix("bin:"))
    others = _others()
    if name not in others:
        import difflib  # noqa: PLC0415 - only for an error

        known = [*OURS, *others]
        near = difflib.get_close_matches(name[:80], known, 1)
        tip = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"format: expected one of {', '.join(known)}, found {quoted(name)}{tip}")
    return _loaded(others[name])


def _loaded(point: "EntryPoint") -> Format:
    name = quoted(point.name)
    try:
        form = point.load()
    except Exception as error:  # whatever a package does when it is imported
        raise ValueError(f"format {name} can't be loaded: {told(error)}") from traced(error)
    if not isinstance(form, Format):
        raise ValueError(f"format {name}: expected a Format, found {quoted(repr(form))}")
    return form


def locate(path: str | os.PathLike[str]) -> Located:
    """Return where a shards directory, or the prefix of a checkpoint, really is.

    Raises:
        ManifestPermissionError: A directory on the way may not be entered.
        OSError: It could not be looked at.
    """
    root = real_root(path)
    if remote_at(root) is not None:
        return Located(root, root)
    with permissions_told(root):
        folder, name = os.path.split(os.path.abspath(path))
        if name and not is_directory(root):
            folder = real_root(folder)
            if signs.is_prefix(os.path.join(folder, name)):
                return Located(os.path.join(folder, name), folder)
    return Located(root, root)  # where a look says what is there instead


def detect(path: str) -> Format:
    """Return the format of a directory, or of the prefix of a checkpoint.

    Formats whose manifest file is there are asked first; then those that are known by the names of
    their shards; then those of other packages.

    Args:
        path: Its real absolute path, as `locate` gives it.

    Raises:
        ManifestNotFoundError: There is no such directory, or no format recognizes it.
        ManifestPermissionError: It, or something in it, may not be read.
        ManifestError: It is not a directory, or two formats recognize it.
        OSError: The file system failed.
    """
    with permissions_told(path):
        if signs.is_prefix(path):
            return signs.CHECKPOINT
        os.close(open_root(path))
        found = claims(path)
        if not found:
            raise ManifestNotFoundError(_unknown(path), path=path)
    if len(found) > 1:
        told_names = ", ".join(form.name for form in found)
        problem = f"several formats recognize it ({told_names}): say which with --format NAME"
        raise ManifestError(f"{problem}, or format= in Python", path=path)
    return found[0]


def _unknown(path: str) -> str:
    """Return what is said of a directory that no format recognizes: what may be meant instead."""
    entries = sorted(listed_in(path))
    if not entries:
        return "expected a shards directory, found nothing; is the path right?"
    lines = [f"near {line}" for line in nearest(path, entries, OURS.values())]
    looked = itertools.islice(_looked(path), _MOST_BELOW)
    below = [quoted(os.path.relpath(here, path)) for here, is_one in looked if is_one]
    first = ", ".join(below[:3]) + ", ..." * (len(below) > 3)
    lines.append(
        f"shards directories below: {first}; use -r, or formats.find in Python"
        if below
        else "`shardproof seal` records the digests of any files, which `valid` then verifies"
    )
    n_entries = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
    problem = f"expected a shards directory, found {n_entries} of no known format:"
    return "".join([problem, *(f"\n  - {line}" for line in lines)])


def claims(path: str) -> list[Format]:
    """Return the formats that recognize a directory; of those only the ones no other includes."""
    marks = {form.name: _marks_in(path, form) for form in OURS.values()}
    if found := _recognizing((form for form in OURS.values() if marks[form.name]), path):
        return found
    names = listed_in(path)
    _refuse_what_lost_its_manifest(path, names, {*itertools.chain(*marks.values())})
    known = _by_suffix(names)
    found = (
        _recognizing((form for form in known if not form.yields), path)
        or _of_others(path)
        or (not {*lists_in(path)} <= {*NAMES.values()} and _recognizing([OURS[LISTS]], path))
        or _recognizing((form for form in known if form.yields), path)
        or _recognizing([OURS[LISTS]], path)  # beside any other format it is a seal
    )
    if not found and TEMPORARY in names:  # its partitions may lie in folders below
        problem = "a job of Hadoop has not committed: let it end; if it was killed, run it again"
        raise ManifestError(problem, path=os.path.join(path, TEMPORARY))
    return found


def find(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the shards directories at and below a path, or an address; none below one that is.

    Hidden directories are left out, and others that never hold shards; links are not followed. A
    directory that two formats claim is one, and so is one that could not be looked at, or whose
    manifest file is torn or gone: to validate it says why.

    Raises:
        OSError: The path itself could not be found out.

    Example:
        >>> from shardproof import formats
        >>> [found] = formats.find(shards_dir.parent)
        >>> found == str(shards_dir)
        True
    """
    return (here for here, is_one in _looked(path) if is_one)


def _looked(path: str | os.PathLike[str]) -> Iterator[tuple[str, bool]]:
    """Yield every directory that is looked at, and whether it is a shards directory."""
    with remote.mounted(path) as place:
        looked = _looked_from(real_root(place))
        yield from [*looked] if "://" in place else looked  # its listing lasts no longer than this


def _looked_from(root: str) -> Iterator[tuple[str, bool]]:
    todo = [root]
    while todo:
        here, is_one, folders = todo.pop(), True, list[str]()
        with contextlib.suppress(ManifestError, OSError):
            folders = next(tree(here))[1]
            found = claims(here)
            is_one = bool(found)
            runs = fnmatch.filter(folders, "checkpoint-[0-9]*")  # beside the model at the end
            folders = folders if all(form.yields for form in found) else runs
        yield here, is_one
        shown = [name for name in reversed(folders) if not is_never_a_shard(name)]
        todo += [os.path.join(here, name) for name in shown]


def stating(path: str) -> list[Format]:
    """Return our formats that state digests and recognize a directory, whatever others include."""
    by_suffix = _by_suffix(listed_in(path))
    return [
        form
        for form in OURS.values()
        if form.states_digests
        # Croissant's metadata may be called metadata.json, as those of others are.
        and (form in by_suffix or form.name == "croissant" or _marks_in(path, form))
        and form.recognizes(path)
    ]


def _marks_in(path: str, form: Format) -> list[str]:
    return [mark for mark in form.marks if is_there(os.path.join(path, mark))]


def _by_suffix(names: Collection[str]) -> list[Format]:
    # A number may follow: x.tfrecord-00000-of-00010.
    ends = {os.path.splitext(name)[1].partition("-")[0].lower() or name for name in names}
    return [
        form
        for form in OURS.values()
        if not ends.isdisjoint(_ENDS[form.name])
        or any(fnmatch.filter(names, pattern) for pattern in form.folders)
    ]


def _refuse_what_lost_its_manifest(path: str, names: Collection[str], marks: set[str]) -> None:
    """Raise where a manifest is no JSON (sound JSON may be another's), or only shards are left."""
    of_json = sorted(mark for mark in marks if mark.endswith((".json", ".sig")))
    states = {mark: _why_no_json(path, mark) for mark in of_json}
    found = {mark: f"it {state}" for mark, state in states.items() if state}
    lines = "\n".join(names)
    for form in OURS.values():
        lost = form.manifest_file
        if form is samples.ARROW and lost not in states:
            continue  # without a state, they are any files of Arrow
        if form.only_its_own and (shards := sorted(re.findall(form.only_its_own, lines))):
            state = states.get(lost, "is missing") or "says nothing of them"
            files = f"{len(shards)} file{'s' * (len(shards) > 1)}"
            there = f"{files} {re.sub(r'[0-9]+', '*', shards[0])}"
            found = {lost: f"found {there}, but {lost} {state}"}
    for lost, problem in found.items():
        tip = "restore it, or write the shards again (no reader finds them without it); of another"
        text = f"{problem}: {tip} format, give --format NAME"
        raise ManifestError(text, path=os.path.join(path, lost))


def _why_no_json(root: str, name: str) -> str:
    """Return in words why a file can't be parsed as JSON; no text where it can."""
    try:
        data = read_bytes(root, name, max_bytes=MAX_BYTES)
        json.loads(data)  # which takes more than we do: what is another's need not be strict
    except ManifestPermissionError:
        raise
    except ManifestError as error:
        return f"can't be read: {error.problem}"
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {told(error)}" if data else "has 0 bytes"
    return ""


def _of_others(path: str) -> list[Format]:
    if remote_at(path) is not None:  # they may ask the operating system: the user has to name them
        return []
    try:
        return _recognizing(map(_loaded, _others().values()), path)
    except ValueError as error:  # it may be the one: to say that nobody knows it would be wrong
        problem = f"no format of ours recognizes it; {told(error)}"
        raise ManifestNotFoundError(problem, path=path) from traced(error)


def _recognizing(formats: Iterable[Format], path: str) -> list[Format]:
    found = [form for form in formats if form.recognizes(path)]
    included = {name for form in found for name in form.includes}
    return [form for form in found if form.name not in included]


def _others() -> "dict[str, EntryPoint]":
    from importlib import metadata  # noqa: PLC0415 - ours are mostly enough, and it takes a while

    return {point.name: point for point in metadata.entry_points(group=_GROUP)}
