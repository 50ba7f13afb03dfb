"""Plan directories: the names in them, what ``plan.json`` says first, and how they are found."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from shardproof._base import json
from shardproof._base.arguments import checked
from shardproof._base.messages import quoted
from shardproof._base.names import file_type
from shardproof._base.opening import mode_of, real_path, refuse_no_path
from shardproof.errors import ManifestError

PLAN_FILE = "plan.json"
RECEIPTS = "receipts"
CLAIMS = "claims"

RESERVED = frozenset({PLAN_FILE, RECEIPTS, CLAIMS})
"""What no output is called, nor a folder of outputs, in whatever case."""

MAX_SHARDS = 1_000_000  # as many as six digits can number
MAX_KINDS = 1000  # of outputs that a plan may owe: each receipt is looked at for each of them
MAX_PLAN_BYTES = 256 * 2**20  # largest plan: two million source files
MAX_RECEIPT_BYTES = 2**20  # in use they have under a thousand bytes, a traceback some thousands

T = TypeVar("T")

_RUNS, _DATASETS = "runs", "datasets"
_MAX_STEPS = 5  # runs/<run_hash>/datasets/<dataset_name>/<plan_hash>
_MAX_UNNAMED = 2  # of them in a row: <dataset_name>/<plan_hash>


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ``plan.json`` that are read without its files; see `Plan`."""

    plan_hash: str
    n_shards: int = msgspec.field(name="num_shards")
    dataset_name: str = ""
    run_hash: str = ""  # as `kinds`, empty where the plan doesn't say
    kinds: tuple[str, ...] = ()
    version: str = "1.0"


class PlanHeader(_Header, frozen=True, kw_only=True):
    """A plan, without what its shards are made of; ``root`` is the real path of its directory."""

    root: str


def _usual(names: str, **inner: object) -> type:
    """Return a struct of these fields and no other, each of whatever value, or missing."""
    fields = [(name, inner.get(name, Any), UNSET) for name in names.split()]
    return msgspec.defstruct("Usual", fields, gc=False, forbid_unknown_fields=True)


_UsualSource: Any = _usual(
    "path size local_path etag mtime version_id hf_repo_id hf_filename hf_revision "
    "row_modulus row_remainder"
)
_UsualAssignment: Any = _usual(
    "shard_index files total_bytes", files=tuple[_UsualSource, ...] | msgspec.UnsetType
)
_UsualPlan = _usual(  # all fields of ``plan.json``, ours and Nemotron's
    "version created_at plan_hash dataset_name num_shards source_fingerprint config_hash "
    "determinism_constraints resolved_tokenizer file_assignments config pins run_hash kinds",
    file_assignments=list[_UsualAssignment] | msgspec.UnsetType,
)


def read_plan_file(root: str, kind: type[T]) -> T:
    """Return ``plan.json`` decoded as ``kind``; raises as `_base.json.read`."""
    return json.read(root, PLAN_FILE, kind, max_bytes=MAX_PLAN_BYTES, usual=_UsualPlan)


def read_header(root: str) -> PlanHeader:
    """Return what a plan says of itself; raise `ManifestError` where that can't be read."""
    header = read_plan_file(root, _Header)
    refuse_version(header.version, root)
    path = os.path.join(root, PLAN_FILE)
    if not 1 <= header.n_shards <= MAX_SHARDS:
        problem = f"expected 1 to {MAX_SHARDS} shards, found {header.n_shards}"
        raise ManifestError(problem, path=path, field="$.num_shards")
    if len(header.kinds) > MAX_KINDS:
        problem = f"expected at most {MAX_KINDS} kinds of outputs, found {len(header.kinds)}"
        raise ManifestError(problem, path=path, field="$.kinds")
    return PlanHeader(root=root, **msgspec.structs.asdict(header))


def refuse_version(version: str, root: str) -> None:
    """Raise a `ManifestError` if a plan's form is none that is known: 1.0, and what adds to it."""
    if version.partition(".")[0] != "1":
        path = os.path.join(root, PLAN_FILE)
        problem = f"expected a plan of version 1.0, found {quoted(version)}"
        raise ManifestError(problem, path=path, field="$.version")


def folder_in(root: str, name: str) -> str:
    """Return the path of a plan's receipts or claims; refuse a link, which could lead anywhere."""
    path = os.path.join(root, name)
    mode = mode_of(path)
    if mode and not stat.S_ISDIR(mode):
        problem = f"expected a directory of {name}, found a {file_type(mode)}; move it away"
        raise ManifestError(problem, path=path)
    return path


def receipt_name(index: int) -> str:
    """Return the file name of a shard's receipt, inside `RECEIPTS`."""
    return f"shard_{index:06d}.json"


@checked
def plan_dirs(
    path: str | os.PathLike[str], on_error: Callable[[OSError], None] | None = None
) -> Iterator[Path]:
    """Yield the plan directories in an output directory or any part of one, sorted by path.

    A directory with receipts that has lost its ``plan.json`` is among them. Where links lead to one
    by several ways, it is yielded once.

    Args:
        path: An output directory, a run, a data set of it, or a plan directory itself.
        on_error: What is done where a directory below it can't be listed; by default that is
            raised.

    Raises:
        FileNotFoundError: The directory is not there.
        OSError: It can't be listed.

    Example:
        >>> from shardproof import receipts
        >>> next(receipts.plan_dirs(plan_dir.parent)) == plan_dir
        True
    """
    refuse_no_path(path=path)
    top = os.path.abspath(path)
    names = os.listdir(top)

    def tell(error: OSError) -> None:
        if on_error is None:
            raise error
        on_error(error)

    def each_once() -> Iterator[Path]:
        seen: set[str] = set()
        for found in _search(top, names, _MAX_STEPS, _MAX_UNNAMED, tell):
            try:
                real = real_path(found)
            except OSError as error:
                tell(error)
                continue
            if real not in seen:
                seen.add(real)
                yield found

    return each_once()


def _search(
    directory: str,
    names: list[str],
    steps: int,
    unnamed: int,
    tell: Callable[[OSError], None],
) -> Iterator[Path]:
    # What is in a directory of data sets is a data set, whatever it is called.
    is_of_datasets = os.path.basename(directory) == _DATASETS
    wanted = [] if is_of_datasets else [name for name in (_RUNS, _DATASETS) if name in names]
    if PLAN_FILE in names or (RECEIPTS in names and not wanted and not is_of_datasets):
        yield Path(directory)
        return
    if not steps or not (wanted or unnamed):
        return
    left = _MAX_UNNAMED if wanted else unnamed - 1
    for name in wanted or sorted(names):
        path = os.path.join(directory, name)
        try:
            below = os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = "it is a symbolic link that leads back to itself, or through too many others"
            advice = "remove it, or let it lead to a directory"
            is_loop = error.errno == errno.ELOOP
            tell(OSError(errno.ELOOP, f"{problem}; {advice}", path) if is_loop else error)
            continue
        yield from _search(path, below, steps - 1, left, tell)
