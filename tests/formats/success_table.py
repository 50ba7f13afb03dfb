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
from click.testing import CliRunner

from shardproof import formats
from shardproof.cli import app
from shardproof.testing import Layout, write_layout
from shardproof.testing.faults import FileSystemFaults
from tests.goldens import GOLDENS

__all__ = ["Row", "page", "rows"]

NOT_DONE = "-"


class Subject(NamedTuple):
    """A directory that was whole.

    Attributes:
        name: Of its format.
        path: Where it is.
        listing: The file that lists its shards; None where their own names do.
        shards: What is promised, by real paths.
    """

    name: str
    path: Path
    listing: Path | None
    shards: Sequence[Path]


def written(name: str, to: Path) -> Subject:
    """Write a directory of a format."""
    golden = next((each for each in GOLDENS if formats.detect(str(each.path)).name == name), None)
    if golden is not None:
        path = golden.copy(to)
    else:
        path = write_layout(Layout(n_shards=2, format=name), to / name).resolve()
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
    """Remove all that is promised."""
    for path in subject.shards:
        path.unlink()
    return True


def tear(subject: Subject) -> bool:
    """Leave half of what lists the shards."""
    if subject.listing is None:
        return False
    os.truncate(subject.listing, subject.listing.stat().st_size // 2)
    return True


def stay_whole(subject: Subject) -> bool:
    """Do nothing: it is the look that fails."""
    return bool(subject.shards)


SITUATIONS: dict[str, Callable[[Subject], bool]] = {
    "nothing promised": list_nothing,
    "all gone": lose_all,
    "manifest torn": tear,
    "could not look": stay_whole,
}


@contextlib.contextmanager
def suffering(situation: str, subject: Subject) -> Iterator[None]:
    """Let each look at the last shard fail, where it is to."""
    with contextlib.ExitStack() as stack:
        if situation == "could not look":
            fs = stack.enter_context(FileSystemFaults(subject.shards[-1].parent))
            name = re.sub(r"([\[*?])", r"[\1]", subject.shards[-1].name)
            fs.fail("open", errno.EIO, match=name, optional=True)  # a refusal may come first
        yield


def run(command: str, *args: object) -> int:
    done = CliRunner().invoke(app.app, [command, *map(str, args)], prog_name="shardproof")
    if not isinstance(done.exception, (SystemExit, type(None))):
        raise done.exception
    return done.exit_code


class Outcome:
    """A plugin that keeps what the item of a directory came to."""

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
            asked = ["--validate-shards", "--shards-level=complete", f"--shards-dir={path}"]
            pytest.main([*args, *asked], plugins=[outcome])
        finally:
            os.chdir(here)
    return outcome.code


COMMANDS: dict[str, Callable[[Path], object]] = {
    "validate": lambda path: run("validate", "--level", "complete", path),
    "validate -r": lambda path: run("validate", "-r", "--level", "complete", path),
    "seal": lambda path: run("seal", path),
    "pytest": run_pytest,
}


def codes(name: str, situation: str) -> str:
    """Return how each command ends in a situation, of a directory of a format."""
    found = []
    for command in COMMANDS.values():
        with tempfile.TemporaryDirectory() as place:
            subject = written(name, Path(place).resolve())
            if not SITUATIONS[situation](subject):
                return NOT_DONE
            with suffering(situation, subject):
                found.append(str(command(subject.path)))
    return " ".join(found)


def empty_source(subject: Subject, to: Path) -> None:
    """Make a source that has no file."""
    to.mkdir()


def wrong_source(subject: Subject, to: Path) -> None:
    """Make a source of which each file is cut."""
    shutil.copytree(subject.path, to)
    for path in to.rglob("*"):
        if path.is_file():
            os.truncate(path, path.stat().st_size // 2 + 1)


SOURCES = {"source empty": empty_source, "source wrong": wrong_source}


def repaired(name: str, situation: str) -> tuple[str, bool]:
    """Return how a repair ends that can't be made, and whether the broken file is as it was."""
    with tempfile.TemporaryDirectory() as place:
        subject = written(name, Path(place).resolve())
        SOURCES[situation](subject, Path(place, "source"))
        broken = subject.shards[-1]
        os.truncate(broken, broken.stat().st_size // 2 + 1)
        before = broken.read_bytes()
        code = run("repair", subject.path, "--from", Path(place, "source"), "-q")
        return str(code), broken.exists() and broken.read_bytes() == before


class Row(NamedTuple):
    """A format, and a cell for each situation."""

    name: str
    cells: dict[str, str]


def rows() -> list[Row]:
    """Return all rows."""
    names = formats.names()
    return [
        Row(
            name,
            {each: codes(name, each) for each in SITUATIONS}
            | {each: repaired(name, each)[0] for each in SOURCES},
        )
        for name in names
    ]


def page(table: Sequence[Row]) -> str:
    """Return the text of the page."""
    titles = ["format", *SITUATIONS, *SOURCES]
    lines = [titles, ["---"] * len(titles)]
    lines += [[f"`{row.name}`", *row.cells.values()] for row in table]
    return PAGE.format(
        commands=", ".join(f"`{name}`" for name in COMMANDS),
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
    )


PAGE = """\
# Success in every format

What [success means](validate.md#what-success-means) is tried with each command and each format:
a directory as the format's own library wrote it, or the kit, to which something happened. In a cell
are the exit codes of {commands},
in this order; pytest has 1 for all that is no success. The last two columns have that of `repair`,
where a file is cut, and the source has no file, or each file cut: the directory stays as it was.
`-` is what can't be done: where the names of the shards are the promise, no manifest can be torn.
A list that says that there is nothing is a promise, and kept. A test makes this table anew, and
compares.

{table}
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(rows()))
