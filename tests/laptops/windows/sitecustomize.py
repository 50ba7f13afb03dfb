"""Make this Python look like that of Windows to what asks: names of the system, and no `fcntl`."""

import asyncio  # noqa: F401 - it looks at the system's name when it is imported, as those below
import concurrent.futures.process  # noqa: F401
import ctypes  # noqa: F401
import io
import multiprocessing.connection  # noqa: F401
import os
import pathlib
import shutil  # noqa: F401
import socket  # noqa: F401
import subprocess  # noqa: F401
import sys
import sysconfig
import tempfile  # noqa: F401

sysconfig.get_config_vars()  # found by the platform's name, while it has its own
for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios"):
    sys.modules[name] = None  # type: ignore[assignment] # so that to import it is an error
_OF_POSIX = "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK geteuid getuid fork register_at_fork uname"
for name in f"{_OF_POSIX} statvfs sched_getaffinity pread preadv mkfifo".split():
    delattr(os, name)
io._WindowsConsoleIO = type("_WindowsConsoleIO", (), {})
sys.modules[pathlib.Path.__module__].WindowsPath = pathlib.PosixPath  # which Path() makes there
os.name, sys.platform = "nt", "win32"
