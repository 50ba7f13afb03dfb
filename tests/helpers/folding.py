"""A file system for which names are equal that differ in case or in Unicode form, as on a Mac.

A directory is mounted once more (FUSE), by a process of its own. As APFS it keeps each name as it
was given, and finds it by any other that means the same to it. Needs the right to mount.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import ROOT

# linux/fuse.h
_IN, _OUT = struct.Struct("IIQQIIII"), struct.Struct("IiQ")
_ATTR = struct.Struct("6Q10I")
_SILENT = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
_DETACH = 2  # MNT_DETACH of umount2(2)


@contextlib.contextmanager
def folding(backing: Path, place: Path) -> Iterator[Path]:
    """Mount a directory so; skip the test where that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    for directory in (backing, place):
        directory.mkdir(exist_ok=True)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no file system that folds names can be mounted here: {error}")
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"folding", os.fsencode(place), b"fuse", 0, options.encode()):
        os.close(fd)
        problem = os.strerror(ctypes.get_errno())
        pytest.skip(f"no file system that folds names can be mounted here: {problem}")
    command = [sys.executable, "-m", __name__, str(fd), os.fspath(backing)]
    with subprocess.Popen(command, pass_fds=[fd], cwd=ROOT):
        os.close(fd)
        try:
            yield place
        finally:
            libc.umount2(os.fsencode(place), _DETACH)


def fold(name: str) -> str:
    """Return what is equal for names that are equal to it."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


class Server:
    """Answers the kernel, one request after the other; files are known by their inodes."""

    def __init__(self, backing: str) -> None:
        self._paths = {1: backing}
        self._by_number = {
            1: self.lookup,
            3: self.getattr,
            4: self.setattr,
            5: self.readlink,
            6: self.symlink,
            9: self.mkdir,
            10: self.unlink,
            11: self.rmdir,
            12: self.rename,
            13: self.link,
            14: self.open,
            15: self.read,
            16: self.write,
            17: self.statfs,
            18: self.release,
            20: self.nothing,
            25: self.nothing,
            26: self.init,
            27: self.nothing_open,
            28: self.readdir,
            29: self.nothing,
            30: self.nothing,
            35: self.create,
        }

    def serve(self, fd: int) -> None:
        while True:
            try:
                request = os.read(fd, 2**21)
            except OSError as error:
                if error.errno == errno.ENODEV:  # it is mounted no more
                    return
                raise
            _, number, unique, node, *_ = _IN.unpack_from(request)
            if number in _SILENT:
                continue
            try:
                found, failed = self._by_number[number](node, request[_IN.size :]), 0
            except KeyError:
                found, failed = b"", errno.ENOSYS
            except OSError as error:
                found, failed = b"", error.errno or errno.EIO
            os.write(fd, _OUT.pack(_OUT.size + len(found), -failed, unique) + found)

    def path(self, node: int, name: bytes) -> str:
        """Return where a name leads: to what is called so, or else to what means the same."""
        folder, wanted = self._paths[node], os.fsdecode(name.rstrip(b"\0"))
        here = os.listdir(folder)
        same = (each for each in here if wanted not in here and fold(each) == fold(wanted))
        return os.path.join(folder, next(same, wanted))

    def attributes(self, path: str) -> bytes:
        s = os.lstat(path)
        node = 1 if path == self._paths[1] else s.st_ino
        times = [s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns]
        whole, parts = [ns // 10**9 for ns in times], [ns % 10**9 for ns in times]
        about = (s.st_mode, s.st_nlink, s.st_uid, s.st_gid, s.st_rdev, 4096, 0)
        return _ATTR.pack(node, s.st_size, s.st_blocks, *whole, *parts, *about)

    def entry(self, path: str) -> bytes:
        node = os.lstat(path).st_ino
        self._paths[node] = path
        return struct.pack("QQQQII", node, 0, 0, 0, 0, 0) + self.attributes(path)

    def init(self, _: int, body: bytes) -> bytes:
        major, minor, ahead = struct.unpack_from("III", body)
        return struct.pack(
            "IIIIHHIIHHI28x", major, min(minor, 31), ahead, 0, 9, 9, 2**20, 1, 0, 0, 0
        )

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(self.path(node, body))

    def getattr(self, node: int, _: bytes = b"") -> bytes:
        return struct.pack("QII", 0, 0, 0) + self.attributes(self._paths[node])

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size, _, atime, mtime, _, ans, mns, _, mode, _, uid, gid, _ = (
            struct.unpack_from("IIQQQQQQIIIIIIII", body)
        )
        path = self._paths[node]
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(path, size)
        if valid & 0x180:
            os.utime(path)
        elif valid & 48:
            os.utime(path, ns=(atime * 10**9 + ans, mtime * 10**9 + mns), follow_symlinks=False)
        return self.getattr(node)

    def readlink(self, node: int, _: bytes) -> bytes:
        return os.fsencode(os.readlink(self._paths[node]))

    def symlink(self, node: int, body: bytes) -> bytes:
        name, target, _ = body.split(b"\0")
        path = self.path(node, name)
        os.symlink(target, path)
        return self.entry(path)

    def mkdir(self, node: int, body: bytes) -> bytes:
        path = self.path(node, body[8:])
        os.mkdir(path, struct.unpack_from("I", body)[0])
        return self.entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(self.path(node, body))
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(self.path(node, body))
        return b""

    def rename(self, node: int, body: bytes) -> bytes:
        old, new, _ = body[8:].split(b"\0")
        source, target = self.path(node, old), self.path(struct.unpack_from("Q", body)[0], new)
        os.rename(source, target)
        begin = f"{source}/"
        for number, path in self._paths.items():
            if f"{path}/".startswith(begin):
                self._paths[number] = target + path[len(source) :]
        return b""

    def link(self, node: int, body: bytes) -> bytes:
        path = self.path(node, body[8:])
        os.link(self._paths[struct.unpack_from("Q", body)[0]], path)
        return self.entry(path)

    def opened(self, path: str, flags: int, mode: int = 0) -> bytes:
        fd = os.open(path, flags & ~(os.O_EXCL | os.O_NOFOLLOW), mode)
        return struct.pack("QII", fd, 0, 0)

    def open(self, node: int, body: bytes) -> bytes:
        return self.opened(self._paths[node], struct.unpack_from("I", body)[0] & ~os.O_CREAT)

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode, _, _ = struct.unpack_from("IIII", body)
        path = self.path(node, body[16:])
        opened = self.opened(path, flags | os.O_CREAT, mode)
        return self.entry(path) + opened

    def read(self, _: int, body: bytes) -> bytes:
        fd, offset, size = struct.unpack_from("QQI", body)
        return os.pread(fd, size, offset)

    def write(self, _: int, body: bytes) -> bytes:
        fd, offset, size = struct.unpack_from("QQI", body)
        return struct.pack("II", os.pwrite(fd, body[40 : 40 + size], offset), 0)

    def release(self, _: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("Q", body)[0])
        return b""

    def statfs(self, _: int, _body: bytes) -> bytes:
        return struct.pack("5Q4I24x", 2**20, 2**19, 2**19, 2**20, 2**19, 4096, 255, 4096, 0)

    def nothing(self, _: int, _body: bytes) -> bytes:
        return b""

    def nothing_open(self, _: int, _body: bytes) -> bytes:
        return bytes(16)

    def readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("QQI", body)
        found = b""
        names = [".", "..", *sorted(os.listdir(self._paths[node]))]
        for number, name in [*enumerate(names, 1)][offset:]:
            status = os.lstat(os.path.join(self._paths[node], name))
            encoded = os.fsencode(name)
            kind = stat.S_IFMT(status.st_mode) >> 12
            each = struct.pack("QQII", status.st_ino, number, len(encoded), kind) + encoded
            each += bytes(-len(each) % 8)
            if len(found) + len(each) > size:
                break
            found += each
        return found


if __name__ == "__main__":
    os.umask(0)
    Server(sys.argv[2]).serve(int(sys.argv[1]))
