"""Which file a call means, and whether that lies below a root."""

import contextlib
import os

# What is asked here is asked on behalf of intercepted calls, and must not be one itself.
_close, _lstat, _open, _readlink = os.close, os.lstat, os.open, os.readlink

_DELETED = " (deleted)"  # what Linux appends to the path of a file that has lost its name


def absolute(place: object, dir_fd: object = None) -> str | None:
    """Return the absolute path that a path, a descriptor or an object with ``fileno()`` is of."""
    # What is wrong with the arguments is for the real call to say.
    with contextlib.suppress(OSError, TypeError, ValueError):
        if isinstance(place, int):
            return _path_of_descriptor(place)
        if hasattr(place, "fileno"):
            return _path_of_descriptor(place.fileno())
        path = os.fsdecode(place)  # type: ignore[arg-type] # a TypeError if it is no path
        base = None if dir_fd is None else _path_of_descriptor(dir_fd)
        return os.path.abspath(path if base is None else os.path.join(base, path))
    return None


def _path_of_descriptor(descriptor: object) -> str:
    path = _readlink(f"/proc/self/fd/{descriptor}")
    if path.endswith(_DELETED):
        try:
            _lstat(path)  # a file may be called so
        except FileNotFoundError:
            return path.removesuffix(_DELETED)
    return path


class Root:
    """A directory, by its real path and by the path that was given, with which names begin."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        descriptor = _open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            real = absolute(descriptor) or self.path
        finally:
            _close(descriptor)
        self._bases = (self.path.rstrip("/"), real.rstrip("/"))
        self._links: dict[str, str] = {}

    def name(self, path: str) -> str | None:
        """Return the path as seen below the root; None for one that lies elsewhere."""
        for base in self._bases:
            if f"{path}/".startswith(f"{base}/"):
                return self._bases[0] + path[len(base) :]
        return self._links.get(path)

    def remember(self, path: str | None, descriptor: int) -> None:
        """Keep the name of a file that was opened below the root and lies elsewhere."""
        name = path and self.name(path)
        real = absolute(descriptor)
        if name and real:
            self._links[real] = name
