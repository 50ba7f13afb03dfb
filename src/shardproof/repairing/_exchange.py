"""Where a file is to be, and how it comes there: by one rename, through no link."""

import contextlib
import errno
import functools
import os
import stat
import struct
import sys
from collections.abc import Iterator
from operator import and_

from shardproof._base import digest, files
from shardproof._base.messages import shown
from shardproof._base.names import NotRegularError, file_type, open_regular
from shardproof._base.opening import is_there, mode_of, real_path
from shardproof.manifest import ExpectedFile, Manifest

_ACL = "system.posix_acl_access"
_ENTRY = "<HHI"  # of linux/posix_acl_xattr.h: a tag, rights, and whose
_OWNING_GROUP, _NAMED_GROUP, _OTHERS = 0x04, 0x08, 0x20


def place_of(file: ExpectedFile, manifest: Manifest) -> tuple[str, str]:
    """Return a directory, and where below it a file is to be: in its place, or in a store."""
    base = root = os.fspath(manifest.root)
    path = os.path.join(root, file.name)
    folder, target, mode = os.path.dirname(path), real_path(path), mode_of(path)
    if real_path(folder) != folder:
        raise ValueError("its folder is behind a link: repair the directory that it leads to")
    if mode and not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        problem = f"expected a regular file or nothing, found a {file_type(mode)}"
        raise ValueError(f"{problem}; move it away")
    store = next((store for store in manifest.stores if _is_below(store, target)), None)
    value = digest.parse(file.digest).value if file.digest and not file.digest_from else "?"
    if store and target.replace("/", "").endswith(value):  # its first digits may be a folder
        base, path = root if _is_below(root, target) else store, target
    elif not store and not _is_below(root, target):
        raise ValueError(f"it is a link that leads out, to '{shown(target)}'")
    folder = os.path.dirname(path)
    while folder != base and not is_there(folder):
        folder = os.path.dirname(folder)
    if folder != base and os.lstat(folder).st_dev != os.lstat(base).st_dev:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return base, os.path.relpath(path, base)


def _is_below(base: str, path: str) -> bool:
    return os.path.commonpath([base, path]) == base


def exchange(part: str, part_fd: int, path: str, base_fd: int) -> None:
    """Give a proven file its name below an open directory, with the rights of what had it."""
    folder, _, name = path.rpartition("/")
    with _opened_folder(folder, base_fd) as fd:
        with contextlib.suppress(FileNotFoundError, NotRegularError):
            if (old_fd := open_regular(name, dir_fd=fd)) is not None:  # no link
                with open(old_fd, "rb", buffering=0):
                    _give_rights(old_fd, part_fd)
        files.move(part, name, target_fd=fd)
        files.sync(fd)


def _give_rights(old: int, new: int) -> None:
    """Give one file the owner, group, mode and list (acl(5)) of another, but no new right."""
    was, acl = os.fstat(old), _acl_of(old)
    for owner in (-1, was.st_uid):  # only root may give it away
        with contextlib.suppress(OSError):
            os.fchown(new, owner, was.st_gid)
    now, mode = os.fstat(new), stat.S_IMODE(was.st_mode)
    if (now.st_uid, now.st_gid) != (was.st_uid, was.st_gid):
        mode &= 0o777
    if now.st_gid != was.st_gid:  # who is in one of the groups was perhaps in none, or in both
        acl, least = _for_another_group(acl, mode & mode >> 3 & 7)
        mode = mode & 0o700 | least << 3 | least
    os.fchmod(new, mode)
    if sys.platform == "linux" and acl != _acl_of(new):
        os.setxattr(new, _ACL, acl) if acl else os.removexattr(new, _ACL)


def _for_another_group(acl: bytes, least: int) -> tuple[bytes, int]:
    """Return a list whose group and others have the rights that all groups had, and these."""
    entries = [*struct.iter_unpack(_ENTRY, acl[4:])]
    groups = (rights for tag, rights, _ in entries if tag in {_OWNING_GROUP, _NAMED_GROUP})
    least = functools.reduce(and_, groups, least)
    given = {_OWNING_GROUP: least, _OTHERS: least}
    packed = (struct.pack(_ENTRY, tag, given.get(tag, old), n) for tag, old, n in entries)
    return acl[:4] + b"".join(packed), least


def _acl_of(fd: int) -> bytes:
    """Return the list of who may what with an open file; nothing where there is none."""
    try:
        return (sys.platform == "linux" and os.getxattr(fd, _ACL)) or b""
    except OSError as error:
        if error.errno in {errno.ENODATA, errno.ENOTSUP}:
            return b""
        raise


@contextlib.contextmanager
def _opened_folder(folder: str, fd: int) -> Iterator[int]:
    """Yield a folder of an open one, through no link; what is made of it goes with an error."""
    made = list[tuple[str, int]]()
    with contextlib.ExitStack() as stack:
        try:
            for part in filter(None, folder.split("/")):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                    made.append((part, fd))
                    files.sync(fd)
                fd = os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                stack.callback(os.close, fd)
            yield fd
        except BaseException:
            for part, above in reversed(made):
                with contextlib.suppress(OSError):
                    files.remove_empty(part, dir_fd=above)
            raise
