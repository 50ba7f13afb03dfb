"""File-system calls that fail, are slow or short, or kill the process, at the call you choose.

::

    from shardproof.testing.faults.file_system import faults

    with faults(path) as fs:
        fs.fail("read", errno.EIO, nth=2, times=1, match="acts*.bin")
        with pytest.raises(OSError, match="acts000001.bin"):
            list(MyLoader(path))

Calls are intercepted where Python code makes them: in this process, on all its threads, for files
below one directory. The files are real, and so is every call for which nothing is planned.
"""

from shardproof.testing.faults.file_system._faults import OPERATIONS, Faults, When, faults
from shardproof.testing.faults.file_system._schedule import Call, Fault, Outcome

__all__ = [
    "OPERATIONS",
    "Call",
    "Fault",
    "Faults",
    "Outcome",
    "When",
    "faults",
]
