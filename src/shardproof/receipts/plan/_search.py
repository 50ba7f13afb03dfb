"""Where plan directories are: found by listing, and never passed over in silence."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shardproof._base.arguments import checked
from shardproof._base.opening import real_path
from shardproof._base.paths import refuse_empty
from shardproof.receipts.plan._layout import PLAN_FILE, RECEIPTS

__all__ = ["plan_dirs"]

_RUNS, _DATASETS = "runs", "datasets"
_MAX_STEPS = 5  # runs/<run_hash>/datasets/<dataset_name>/<plan_hash>
_MAX_UNNAMED = 2  # of them in a row: <dataset_name>/<plan_hash>

OnError = Callable[[OSError], None]


@checked
def plan_dirs(path: str | os.PathLike[str], on_error: OnError | None = None) -> Iterator[Path]:
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
    """
    refuse_empty(path=path)
    top = os.path.abspath(path)
    on_error = on_error or _raise
    found = _search(top, os.listdir(top), _MAX_STEPS, _MAX_UNNAMED, on_error)
    return _each_once(found, on_error)


def _each_once(paths: Iterator[Path], on_error: OnError) -> Iterator[Path]:
    seen: set[str] = set()
    for path in paths:
        try:
            real = real_path(path)
        except OSError as error:
            on_error(error)
            continue
        if real not in seen:
            seen.add(real)
            yield path


def _raise(error: OSError) -> None:
    raise error


def _search(
    directory: str, names: list[str], steps: int, unnamed: int, on_error: OnError
) -> Iterator[Path]:
    # What is in a directory of data sets is a data set, whatever it is called.
    is_of_datasets = os.path.basename(directory) == _DATASETS
    wanted = [] if is_of_datasets else [name for name in (_RUNS, _DATASETS) if name in names]
    if PLAN_FILE in names or (RECEIPTS in names and not wanted and not is_of_datasets):
        yield Path(directory)
    elif steps and (wanted or unnamed):
        left = _MAX_UNNAMED if wanted else unnamed - 1
        for path, below in _listed(directory, wanted or sorted(names), on_error):
            yield from _search(path, below, steps - 1, left, on_error)


def _listed(directory: str, names: list[str], on_error: OnError) -> Iterator[tuple[str, list[str]]]:
    for name in names:
        path = os.path.join(directory, name)
        try:
            yield path, os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            on_error(_worded(error, path))


def _worded(error: OSError, path: str) -> OSError:
    if error.errno != errno.ELOOP:
        return error
    problem = "it is a symbolic link that leads back to itself, or through too many others"
    return OSError(errno.ELOOP, f"{problem}; remove it, or let it lead to a directory", path)
