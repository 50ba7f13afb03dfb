"""An untrusted name becomes a path inside a root, or is refused.

A name is refused by its text first (`refusals`), and by the file that it leads to second
(`open_inside`): the file must lie inside the root, after every symbolic link, and be regular.
"""

import contextlib
import errno
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from shardproof._base.addresses import remote_at
from shardproof._base.beneath import NotRegularError as NotRegularError  # noqa: PLC0414
from shardproof._base.beneath import Walk, open_here
from shardproof._base.messages import quoted
from shardproof._base.opening import (
    MAX_NAME_BYTES,
    Descriptor,
    OpenFile,
    is_conclusive,
    is_directory,
    is_link,
    permission_denied,
    real_path,
    status_of,
)
from shardproof._base.work import current
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError

MAX_PATH_BYTES = 4095  # PATH_MAX of Linux, less its closing NUL

OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
"""How a file is opened to look at it: never blocking, never through a link, never a terminal."""

_TOO_LONG = f"its path is over {MAX_PATH_BYTES} bytes"
_CONTROLS = {"Cc", "Zl", "Zp"}  # categories of Unicode
_PLAIN_LINES = re.compile(r"[0-9A-Za-z_.\-/\n]+")
_LOWER_LINES = re.compile(r"[0-9a-z_.\-/\n]+")
_NO_PLAIN_PART = re.compile(r"(?:^|/)(?:\.{0,2})(?:/|$)", re.MULTILINE)


class Refusal(NamedTuple):
    """A name that no path may be made of, and why."""

    entry: int
    name: str
    reason: str


def refusals(names: Sequence[str], *, twins: bool = False) -> list[Refusal]:
    """Return every name that may not become a path, with the reason; in order, none left out."""
    # With ``twins``, two may differ in nothing but case: a listing found both.
    if _all_plain(names):
        return []
    refused = {
        entry: Refusal(entry, name, reason)
        for entry, name in enumerate(names)
        if (reason := _why_refused(name))
    }
    return sorted([*refused.values(), *(() if twins else _twins(names, refused))])


def _all_plain(names: Sequence[str]) -> bool:
    """Whether all names are harmless paths in ASCII, by a few passes at the speed of C."""
    text = "\n".join(names)
    is_lower = _LOWER_LINES.fullmatch(text)
    if not (is_lower or _PLAIN_LINES.fullmatch(text)) or text.count("\n") != len(names) - 1:
        return False
    distinct = set(names if is_lower else text.lower().split("\n"))
    return (
        len(distinct) == len(names)
        and _NO_PLAIN_PART.search(text) is None
        and max(map(len, names)) <= MAX_NAME_BYTES
    )


def _why_refused(name: str) -> str | None:
    # First, so that nothing below is asked of a name that is longer: some of it takes the square.
    if len(name) > MAX_PATH_BYTES:
        return _TOO_LONG
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it has a lone surrogate"
    parts = name.split("/")
    reasons = {
        "it is empty": not name,
        "it is absolute": name.startswith("/"),
        "it has an empty, '.' or '..' part": not {"", ".", ".."}.isdisjoint(parts),
        "it has a backslash": "\\" in name,
        "it begins with a drive": re.match(r"[A-Za-z]:", name) is not None,
        "it has a control character": not _CONTROLS.isdisjoint(map(unicodedata.category, name)),
        f"it is over {MAX_NAME_BYTES} bytes": any(
            len(part.encode()) > MAX_NAME_BYTES for part in parts
        ),
        _TOO_LONG: len(encoded) > MAX_PATH_BYTES,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _twins(names: Sequence[str], refused: Container[int]) -> Iterator[Refusal]:
    """Yield names that are an earlier one to some file systems: equal after NFC and case."""
    # Of those that are not refused anyway: to fold a long name takes the square of its length.
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if index in refused:
            continue
        entry = first.setdefault(folded(name), index)
        if entry != index:
            earlier = names[entry]
            how = "twice" if earlier == name else f"beside its twin {quoted(earlier)}"
            yield Refusal(index, name, f"it is listed {how}")


def folded(name: str) -> str:
    """Return the same for names that some file systems take for equal."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def spelled(listed: Sequence[str], promised: Collection[str], root: str) -> list[str]:
    """Return listed names, each as a manifest has it if the file system takes both for one."""
    # On APFS, names are equal that differ in case or in Unicode form; and some file systems list
    # another form than was written. So the file system is asked, whatever its own name is.
    there, meant = {*listed}, {}
    odd = [name for name in listed if name not in promised]
    new = (name for name in promised if name not in there and len(name) <= MAX_PATH_BYTES)
    wanted = {folded(name): name for name in new} if odd else {}
    for name in odd:
        if other := wanted.get(folded(name)):
            one, same = (status_of(os.path.join(root, each)) for each in (name, other))
            if one and same and os.path.samestat(one, same):
                meant[name] = other
    return [meant.get(name, name) for name in listed]


def entries_of(refused: Iterable[Refusal], names: Sequence[str]) -> set[int]:
    """Return which of some names are refused, of twins the first as well."""
    entries = {refusal.entry for refusal in refused}
    twins = {folded(name) for _, name, _ in refused if _why_refused(name) is None}
    others = enumerate(names) if twins else ()
    return entries | {n for n, name in others if n not in entries and folded(name) in twins}


def refuse_unspelled(names: Sequence[str], source: str | os.PathLike[str]) -> None:
    """Raise where the locale has no bytes for a name: such a file can't be looked at from here."""
    # It may be whole. So a manifest with such a name is neither refused nor damaged: a job that
    # makes damaged shards again would make it again in vain.
    encoding = sys.getfilesystemencoding()
    unspelled = []
    for name in () if encoding == "utf-8" else names:
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            unspelled.append(name)
    if unspelled:
        problem = (
            f"the locale's encoding {quoted(encoding)} has no bytes for {len(unspelled)} of the "
            f"names, such as {quoted(unspelled[0])}; set PYTHONUTF8=1 or a UTF-8 locale"
        )
        raise OSError(errno.EILSEQ, problem, os.fspath(source))


def real_root(path: str | os.PathLike[str]) -> str:
    """Return where a directory with a manifest really is."""
    try:
        return real_path(path)
    except PermissionError:
        raise ManifestPermissionError(permission_denied(), path=os.path.abspath(path)) from None


def open_root(root: str) -> int:
    """Return a descriptor of a directory, by its real path: a link was put there meanwhile."""
    if remote_at(root) is not None:  # which needs none, so it gets one of nothing
        if not is_directory(root):
            raise ManifestError("expected the address of a directory, found a file", path=root)
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        problem = (
            "there is no such directory. If the path is right, a scratch file system may have "
            "purged it: make the shards again or restore them"
        )
        if re.search(r"/[a-z0-9]+:/", root):
            problem = "there is no such directory. Is it an address? Give it as text, no `Path`, "
            problem += "which makes `s3:/` of `s3://`"
        raise ManifestNotFoundError(problem, path=root) from None
    except PermissionError:
        raise ManifestPermissionError(permission_denied(), path=root) from None
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        if is_link(root):
            os.stat(root)  # raises where links lead round in a circle
            raise replaced(root) from error
        problem = "expected a shards directory, found a file; give the directory that holds it"
        raise ManifestError(problem, path=root) from None


def replaced(root: str) -> OSError:
    """Return the error of a directory whose name leads to another one by now."""
    return OSError(errno.ESTALE, "it was replaced during the check", root)


def open_inside(name: str, *, root: str, dir_fd: int, links: bool = True) -> int:
    """Open a regular file of the root by a name that was accepted; return its descriptor."""
    # Opening a FIFO may block or wake its writer, and opening a device may act on it (open(2)): so
    # what is put in the place of a file after the look is opened without a wait, and refused then.
    fd = None if "/" in name else open_regular(name, dir_fd)
    if fd is None:
        fd = Walk(root, dir_fd, links=links).open(name, open_regular)
    return fd


def open_file(name: str, *, root: str, dir_fd: int, links: bool = True) -> OpenFile:
    """Open a file as `open_inside` does, wherever the root is."""
    if (place := remote_at(root)) is not None:
        return place.directory.open(os.path.join(place.name, name))
    return Descriptor(open_inside(name, root=root, dir_fd=dir_fd, links=links))


def open_folder(name: str, *, root: str, dir_fd: int, links: bool = True) -> int:
    """Open a folder as `open_inside` opens a file, to open files in it one after another."""
    return Walk(root, dir_fd, links=links).open(f"{name}/", open_here)


@contextlib.contextmanager
def opened(name: str, root: str, dir_fd: int | None = None) -> Iterator[OpenFile | None]:
    """Open a file of the root; None where there is none that may be read, which a check finds."""
    with contextlib.ExitStack() as stack:
        if dir_fd is None:
            dir_fd = open_root(root)
            stack.callback(os.close, dir_fd)
        file = None
        try:
            with contextlib.suppress(NotRegularError):
                file = open_file(name, root=root, dir_fd=dir_fd)
                stack.callback(file.close)
        except OSError as error:
            if not is_conclusive(error.errno):
                raise
        yield file


def open_regular(path: str, dir_fd: int | None = None) -> int | None:
    """Open a regular file as `open_inside` does; None for a link. Those above it are followed."""
    mode = os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return None
    if not stat.S_ISREG(mode):
        raise NotRegularError(file_type(mode))
    try:
        fd = _open(path, dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it became one meanwhile
            return None
        raise
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd
        raise NotRegularError(file_type(mode))
    except BaseException:
        os.close(fd)
        raise


def open_followed(path: str) -> int:
    """Open a regular file as `open_regular` does, behind links too."""
    fd = open_regular(real_path(path))
    if fd is None:  # a link that leads round in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd


def _open(path: str, dir_fd: int | None) -> int:
    try:
        return os.open(path, OPEN_FLAGS | current.flags, dir_fd=dir_fd)
    except PermissionError:  # O_NOATIME is for the owner of a file (open(2))
        if not current.flags:
            raise
        return os.open(path, OPEN_FLAGS, dir_fd=dir_fd)


def file_type(mode: int) -> str:
    """Return what ``st_mode`` says a file is, in words."""
    return _FILE_TYPES.get(stat.S_IFMT(mode), f"file of unknown type {stat.S_IFMT(mode):#o}")


_FILE_TYPES = {
    stat.S_IFREG: "regular file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
