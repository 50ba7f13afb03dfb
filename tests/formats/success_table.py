"""Write docs/success.md: how each command ends where there can be no success, for each format.

::

    python -m tests.formats.success_table docs/success.md

A directory of each format, as its own library wrote it, is emptied, cut, or made unreadable, and
then given to each command. What a cell has are exit codes, in the order of `COMMANDS`.
"""

import contextlib
import errno
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from shardproof import formats
from shardproof.testing import Layout, write_layout
from shardproof.testing.faults import FileSystemFaults
from tests.formats.looking import format_of
from tests.goldens import GOLDENS
from tests.helpers import commands

NOT_DONE = "-"


class Subject(NamedTuple):
    name: str
    path: Path
    listing: Path | None
    shards: Sequence[Path]


def written(name: str, to: Path) -> Subject:
    golden = next((each for each in GOLDENS if format_of(each) == name), None)
    if golden is not None:
        path = golden.copy(to)
    else:
        layout = Layout(n_shards=2, format=name)
        path = write_layout(layout, to / name / layout.folder).resolve()
        path = path if path.is_dir() else path.parent
    manifest = formats.get(name).read_manifest(str(path))
    shards = [(path / file.name).resolve() for file in manifest.files]
    is_listed = manifest.path.is_file() and manifest.path.resolve() not in shards
    return Subject(name, path, manifest.path if is_listed else None, shards)


LISTS_NOTHING: dict[str, object] = {
    "saev": [],
    "mds": {"version": 2, "shards": []},
    "litdata": {"chunks": [], "config": {"chunk_bytes": 64, "compression": None}},
    "arrow": {"_data_files": []},
    "energon": {"shard_counts": {}},
    "wids": {"wids_version": 1, "shardlist": []},
    "croissant": "",
    "digests": "",
    "bagit": "",
    "dvc": "outs: []\n",
}
"""What the list of a format is that names nothing."""


def list_nothing(subject: Subject) -> bool:
    """Let nothing be promised: by a list that names nothing, or by no file where there is none."""
    if subject.listing is None:
        shutil.rmtree(subject.path)
        subject.path.mkdir()
    elif subject.name in LISTS_NOTHING:
        content = LISTS_NOTHING[subject.name]
        text = content if isinstance(content, str) else json.dumps(content)
        patterns = {"bagit": "manifest-*.txt", "dvc": "?*.dvc"}  # of which there are several
        for path in (subject.listing, *subject.path.glob(patterns.get(subject.name, "none"))):
            path.write_text(text)
        if subject.name == "saev":
            metadata = json.loads((subject.path / "metadata.json").read_text())
            (subject.path / "metadata.json").write_text(json.dumps(metadata | {"n_examples": 0}))
    elif subject.name == "receipts":
        for path in (subject.path / "receipts").iterdir():
            path.unlink()
    else:
        return False
    return True


def lose_all(subject: Subject) -> bool:
    for path in subject.shards:
        path.unlink()
    return True


def tear(subject: Subject) -> bool:
    if subject.listing is None:
        return False
    os.truncate(subject.listing, subject.listing.stat().st_size // 2)
    return True


def cut_one(subject: Subject) -> bool:
    path = subject.shards[-1]
    os.truncate(path, path.stat().st_size // 2 + 1)
    return True


def empty(source: Path) -> None:
    shutil.rmtree(source)
    source.mkdir()


def cut_each(source: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            os.truncate(path, path.stat().st_size // 2 + 1)


class Situation(NamedTuple):
    damage: Callable[[Subject], bool]
    spoil: Callable[[Path], object] = bool  # which leaves a copy of what was whole


SITUATIONS = {
    "nothing expected": Situation(list_nothing),
    "all gone": Situation(lose_all),
    "manifest torn": Situation(tear),
    "unreadable": Situation(lambda subject: bool(subject.shards)),  # it is the look that fails
    "source empty": Situation(cut_one, empty),
    "source wrong": Situation(cut_one, cut_each),
}


@contextlib.contextmanager
def prepared(name: str, situation: str) -> Iterator[tuple[Subject, Path] | None]:
    with tempfile.TemporaryDirectory() as place:
        subject, source = written(name, Path(place).resolve()), Path(place, "source")
        shutil.copytree(subject.path, source)
        damage, spoil = SITUATIONS[situation]
        spoil(source)
        yield (subject, source) if damage(subject) else None


@contextlib.contextmanager
def suffering(situation: str, subject: Subject) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if situation == "unreadable":
            fs = stack.enter_context(FileSystemFaults(subject.shards[-1].parent))
            name = re.sub(r"([\[*?])", r"[\1]", subject.shards[-1].name)
            fs.fail("open", errno.EIO, match=name, optional=True)  # a refusal may come first
        yield


def run(*args: object) -> int:
    return commands.run(*args).exit_code


class Outcome:
    code = NOT_DONE

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.code = "1" if report.failed else "0"


def run_pytest(path: Path) -> str:
    here, outcome = Path.cwd(), Outcome()
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(name)
        try:
            args = ["-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", name, "-c", os.devnull]
            asked = ["--validate-shards", "--shards-level=valid", f"--shards-dir={path}"]
            pytest.main([*args, *asked], plugins=[outcome])
        finally:
            os.chdir(here)
    return outcome.code


COMMANDS: dict[str, Callable[[Path, Path], object]] = {
    "validate": lambda path, _: run("validate", "--level", "valid", path),
    "validate -r": lambda path, _: run("validate", "-r", "--level", "valid", path),
    "repair": lambda path, source: run("repair", path, "--from", source, "-q"),
    "seal": lambda path, _: run("seal", path),
    "pytest": lambda path, _: run_pytest(path),
}


def codes(name: str, situation: str) -> str:
    found = []
    for command in COMMANDS.values():
        with prepared(name, situation) as made:
            if made is None:
                return NOT_DONE
            subject, source = made
            with suffering(situation, subject):
                found.append(str(command(subject.path, source)))
    return " ".join(found)


class Row(NamedTuple):
    name: str
    cells: dict[str, str]


def rows() -> list[Row]:
    return [
        Row(name, {situation: codes(name, situation) for situation in SITUATIONS})
        for name in formats.names()
    ]


def page(table: Sequence[Row]) -> str:
    titles = ["format", *SITUATIONS]
    lines = [titles, ["---"] * len(titles)]
    lines += [[f"`{row.name}`", *row.cells.values()] for row in table]
    return PAGE.format(
        commands=", ".join(f"`{name}`" for name in COMMANDS),
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
    )


PAGE = """\
# Success in every format

This table shows what each command returns for each format when it can't succeed
([what success means](validate.md#what-success-means)). The format's own library, or the testing
kit, wrote each directory. Then we changed it. A test writes this table anew, and compares.

- A cell has the exit codes of {commands},
  in this order, at level `valid`. `pytest` returns 1 for everything that is no success.
- `repair` fetches from an intact copy, and returns 0 only if every byte is back.
- In the last two columns one file is truncated, and the copy lacks that file, or has each file
  truncated. The directory stays as it is.
- `-` is impossible: a format whose shards are its manifest has no manifest to tear.
- A manifest that lists no shards is valid.
- `seal` needs no format: with all shards of `bin` gone, it seals `meta.pkl`, which is still there.

{table}
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(rows()))
