"""A call that fails while a manifest is read is no verdict, in any format and whichever it is."""

import errno
from collections import Counter
from pathlib import Path

import pytest

from shardproof import formats
from shardproof.errors import ManifestError
from shardproof.testing.faults import FileSystemFaults
from tests.formats.looking import sampled
from tests.goldens import GOLDENS, Golden

CALLS = {"open", "stat", "scandir", "read", "readlink"}


def read(root: Path) -> list[object]:
    manifest = formats.detect(str(root)).read_manifest(str(root))
    return [manifest.files, *manifest.contradictions()]


@pytest.mark.slow
@pytest.mark.parametrize("golden", sampled(GOLDENS))
def test_what_could_not_be_looked_at_is_neither_absent_nor_damaged(
    golden: Golden, tmp_path: Path
) -> None:
    root = golden.copy(tmp_path)
    with FileSystemFaults(root.parent) as fs:
        whole = read(root)
    counts = Counter(call.operation for call in fs.calls if call.operation in CALLS)
    swallowed = []
    for operation, nth in [(name, nth) for name, n in counts.items() for nth in range(1, n + 1)]:
        with FileSystemFaults(root.parent) as fs:
            fs.fail(operation, errno.EIO, nth=nth, times=1)
            try:
                found: object = read(root)
            except OSError as error:
                found = error.errno
                if isinstance(error, ManifestError):
                    swallowed.append((operation, nth, str(error)))
        if found not in (errno.EIO, whole):
            swallowed.append((operation, nth, str(found)))
    assert swallowed == []
