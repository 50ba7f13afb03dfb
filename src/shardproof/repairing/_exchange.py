"""Where a file is to be, and how it comes there: by one rename, through no link."""

import contextlib
import os
import stat
from collections.abc import Iterator

from shardproof._base import digest, files
from shardproof._base.messages import shown
from shardproof._base.names import file_type
from shardproof._base.opening import mode_of, real_path
from shardproof.manifest import Manifest, PromisedFile


def place_of(file: PromisedFile, manifest: Manifest) -> tuple[str, str]:
    """Return below which directory a promised file is to be, and its path there.

    That is its own place, from which a link gives way; or what the link leads to, where the format
    keeps its bytes and calls them by the promised digest.
    """
    root = os.fspath(manifest.root)
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
        base = root if _is_below(root, target) else store
        return base, os.path.relpath(target, base)
    if not store and not _is_below(root, target):
        raise ValueError(f"it is a link that leads out, to '{shown(target)}'")
    return root, file.name


def _is_below(base: str, path: str) -> bool:
    return os.path.commonpath([base, path]) == base


def exchange(part: str, path: str, base_fd: int) -> None:
    """Give a proven file its name below an open directory; what has it leaves its permissions."""
    folder, _, name = path.rpartition("/")
    with _opened_folder(folder, base_fd) as fd:
        with contextlib.suppress(FileNotFoundError):
            old = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISREG(old.st_mode):
                with contextlib.suppress(PermissionError):
                    os.chown(part, old.st_uid, old.st_gid)
                os.chmod(part, stat.S_IMODE(old.st_mode))
        files.move(part, name, target_fd=fd)
        files.sync(fd)


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
