"""Golden directories, every file of them spoiled: refused, or with findings, in our words."""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof import formats, validate
from shardproof.checks import check
from tests.attacks.tally import Tally
from tests.attacks.targets import Target
from tests.attacks.test_hostile_files import attack
from tests.goldens import GOLDENS, Golden

MEMORY = 64 * 2**20
OF_BLAKE3 = 2**29  # more than 64 KiB it reads by threads of its own, each with a heap of 64 MiB
PATIENCE = 1.0

SPAWNS = {"os.exec", "os.posix_spawn", "os.system", "pickle.find_class", "socket.connect"}
SPAWNS |= {"subprocess.Popen", "os.remove", "os.rename", "os.truncate", "os.mkdir"}


def one_of_each_format() -> dict[str, Golden]:
    return {formats.detect(str(golden.path)).name: golden for golden in reversed(GOLDENS)}


def files_of(golden: Golden) -> list[str]:
    below = sorted(
        path for path in golden.path.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return [path.relative_to(golden.path).as_posix() for path in below]


class Watch:
    def __init__(self) -> None:
        self._root, self._seen = "", list[str]()
        sys.addaudithook(self._hook)  # which stays, in all that is forked too

    def _hook(self, event: str, args: tuple) -> None:
        if not self._root:
            return
        if event in SPAWNS:
            self._seen.append(event)
        elif event == "open" and self._is_elsewhere(args[0]):
            self._seen.append(f"{event} {args[0]!r}")

    def _is_elsewhere(self, path: object) -> bool:
        is_told = isinstance(path, str) and os.path.isabs(path)
        if is_told and path.endswith("/dvc"):  # its settings of this user, and of this machine
            return False
        return is_told and not path.startswith(self._root) and not path.endswith((".py", ".pyc"))

    @contextlib.contextmanager
    def below(self, root: Path) -> Iterator[None]:
        self._seen.clear()
        self._root = f"{root}/"
        try:
            yield
        finally:
            self._root = ""
        assert not self._seen, self._seen


@functools.cache
def watch() -> Watch:
    return Watch()


def read(form: formats.Format, root: Path) -> Iterator[str]:
    """Read the promise and look at the files, in this thread: the stack of another takes memory."""
    with watch().below(root.parent):
        manifest = formats.read_manifest(form, os.fspath(root))
        for level in ("complete", "valid"):
            report = check(manifest, level=level, workers=1)
            yield str(report)
            yield from (f"{finding.expected} {finding.found}" for finding in report.findings)


def target_of(name: str, golden: Golden, read_it) -> Target:
    files = files_of(golden)
    memory = OF_BLAKE3 if name == "digests-b3" else MEMORY
    return Target(name, golden.copy, files, read_it, patience=PATIENCE, memory=memory)


@pytest.mark.attack("hostile manifests")
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_a_spoiled_directory_is_refused_in_our_words(golden, tmp_path, tally) -> None:
    reader = functools.partial(read, formats.detect(str(golden.path)))
    target = target_of(golden.name, golden, reader)
    validate(golden.copy(tmp_path / "once"), level="valid")  # what is imported is imported
    attack(target, tally, 400, tmp_path / "many", n_cases=30_000)


@pytest.mark.control("wrong class")
def test_a_reader_that_follows_names_anywhere_is_caught(tmp_path: Path, tally: Tally) -> None:
    def naive(root: Path) -> Iterator[str]:
        with watch().below(root.parent):
            for line in (root / "SHA256SUMS").read_text().splitlines():
                yield f"{len((root / line.split(maxsplit=1)[1]).read_bytes())} bytes"

    [golden] = [golden for golden in GOLDENS if golden.name == "digests"]
    target = target_of("digests", golden, naive)._replace(files=["SHA256SUMS"])
    attack(target, tally, 1, tmp_path, n_cases=500)
