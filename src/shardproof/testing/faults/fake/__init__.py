"""Shards directories in a fake file system (pyfakefs), which knows when code leaves it.

::

    from shardproof.testing import layout
    from shardproof.testing.faults.fake import fake_shards_dir

    with fake_shards_dir(layout(n_shards=3, unreadable=[1])) as path:
        ...  # open(path / "acts000001.bin") raises PermissionError, for root too

Take it for code that uses `open`, `os.open`, `os.read`, `os.stat`, `os.scandir` or `pathlib`:
permissions count without privileges, and nothing is written to any disk. For everything else take
`shardproof.testing.shards_dir`, which is several times faster besides.

**What pyfakefs lets through, is refused here.** It does not fake `os.pread` and its kin, `mmap`, or
what C code does with a descriptor: there they read, and write, the real file that has the same
number. Here fake descriptors have numbers that no real one has, so no other file is ever touched;
and whoever calls one of these gets a `NotFakedError`:

* ``os``: ``pread preadv readv pwrite pwritev writev sendfile copy_file_range splice posix_fadvise
  posix_fallocate lockf dup dup2 fchown fchdir fstatvfs fpathconf``, and with a fake path ``statvfs
  pathconf mkfifo lchown``,
* ``fcntl``: ``fcntl flock ioctl lockf`` (which pyfakefs passes over in silence),
* ``mmap.mmap``, and with it ``numpy.memmap`` and ``numpy.load(mmap_mode=...)``,
* ``numpy.fromfile`` and ``ndarray.tofile``, which begin with ``os.dup``,
* ``io.FileIO``, and whatever else of Python's own opens, lists, renames or removes a fake path in
  the real file system.

With real descriptors - pipes, sockets, what was open before - all of these work as ever, and so do
``os.read``, ``os.write``, ``os.close`` and ``open(fd)``, which pyfakefs alone would refuse.

**What is patched.** Module globals, whenever the module was imported: ``os``, ``io``, ``pathlib``,
``shutil``, ``fcntl`` and names such as ``from os import pread``. Not patched is what was put
elsewhere before: in a default argument, a class or a dict. Calls through those are still refused
where CPython audits them (``open``, ``mmap``, ``fcntl`` and most that take a path); of the rest,
those with a descriptor fail with EBADF and those with a path with ENOENT. C code that opens paths
itself (pyarrow, h5py, safetensors) and other processes see the real file system.

Import what you test before the context begins: modules that are imported inside are forgotten at
its end, and imported anew. Those of shardproof and numpy are not.

**Where pyfakefs differs from a disk** (5.7.0 to 6.3.2): `os.open` gives the file that it opens the
mode 0o755; ``DirEntry.is_file()`` of a dangling or looping link is True; reading a directory's
descriptor fails with EBADF and not with EISDIR; a file that was emptied and that `os.truncate` then
extends reads as empty; nothing has holes.
"""

from shardproof.testing._extras import extra

with extra():
    from shardproof.testing.faults.fake._calls import NotFakedError
    from shardproof.testing.faults.fake._fake import fake_shards_dir, fake_shards_dir_maker

__all__ = [
    "NotFakedError",
    "fake_shards_dir",
    "fake_shards_dir_maker",
]
