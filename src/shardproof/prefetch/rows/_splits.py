"""Which files of a repository are those of a split, by their names alone.

As https://huggingface.co/docs/hub/datasets-file-names-and-splits has it: the split is a word of the
file's name, or a directory. What a dataset card says in YAML is not read.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

from shardproof._names import quoted
from shardproof.errors import SourceError
from shardproof.prefetch.rows._specs import SPLIT_WORDS
from shardproof.prefetch.sources._source import RemoteFile

__all__ = ["SUFFIX", "chosen_files", "in_natural_order", "split_files"]

SUFFIX = ".parquet"

_PATTERN = re.compile(r"[*?\[]")
_DEFAULT_DIRECTORIES: tuple[tuple[str, ...], ...] = ((), ("data",), ("default",))
_SHOWN = 20

Directories = tuple[str, ...]


def in_natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted so that 2 comes before 10; the same list whatever the order was.

    Example:
        >>> in_natural_order(["train-10", "train-2", "train-02"])
        ['train-02', 'train-2', 'train-10']
    """
    return sorted(names, key=_natural)


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    # Digits by their number, which is compared by its length first: int() refuses thousands of them
    parts = re.split(r"([0-9]+)", name)
    digits = [part.lstrip("0") if n % 2 else part for n, part in enumerate(parts)]
    return [(len(part) if n % 2 else 0, part) for n, part in enumerate(digits)], name


def chosen_files(files: Sequence[RemoteFile], wanted: Sequence[str], url: str) -> list[RemoteFile]:
    """Return the files that were asked for: names in the order given, patterns in natural order.

    Args:
        files: What is there; nothing for a source that doesn't list, which is taken at its word.
        wanted: Names, or patterns with ``*``, ``?`` or ``[...]``; ``*`` matches a slash too.
        url: Where they are.

    Raises:
        SourceError: One of them is not there; all of those in one error.
        ValueError: One is meant twice.
    """
    there = {file.name: file for file in files}
    if not files:
        there = {name: RemoteFile(name) for name in wanted if not _PATTERN.search(name)}
    names: list[str] = []
    missing = []
    for name in wanted:
        found = _matching(name, there)
        names += found
        if not found:
            missing.append(name)
    if missing:
        raise _none_found(url, f"{len(missing)} of data_files: {_listed(missing)}", files)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"data_files: these are meant more than once: {_listed(twice)}")
    _refuse_other_formats(names)
    return [there[name] for name in names]


def _matching(name: str, there: Iterable[str]) -> list[str]:
    if not _PATTERN.search(name):
        return [name] if name in there else []
    return in_natural_order(fnmatch.filter(there, name))


def _refuse_other_formats(names: Sequence[str]) -> None:
    if other := [name for name in names if not name.endswith(SUFFIX)]:
        raise ValueError(f"data_files: {_ONLY_PARQUET}, found {_listed(other)}")


def split_files(
    files: Sequence[RemoteFile], split: str, name: str | None, url: str
) -> list[RemoteFile]:
    """Return the parquet files of a split, in natural order.

    Args:
        files: What is there.
        split: ``"train"``, ``"test"``, ...
        name: Of the configuration: a directory, or several one below the other; None for the
            default one.
        url: Where they are.

    Raises:
        SourceError: There are none, or it can't be told which; the text says what is there.
    """
    all_parquet = [file.name for file in files if file.name.endswith(SUFFIX)]
    of_config = [file for file in all_parquet if name is None or _end_of(_dirs(file), name)]
    if not of_config and name in {"default", "data"}:
        name, of_config = None, all_parquet
    names = [file for file in of_config if _is_of(file, split)]
    top: Callable[[str], Directories] = lambda file: _above(_dirs(file), split)  # noqa: E731
    if not names and _usual(split) == "train" and not any(map(_says_a_split, of_config)):
        names, top = of_config, lambda file: _dirs(file)[: _end_of(_dirs(file), name) or 1]
    if not names:
        what = f"the split {quoted(split)}" + (f" of {quoted(name)}" if name else "")
        raise _none_found(url, what, files)
    names = _of_one_directory(names, top, url)
    there = {file.name: file for file in files}
    return [there[file] for file in in_natural_order(names)]


def _of_one_directory(
    names: Sequence[str], top: Callable[[str], Directories], url: str
) -> list[str]:
    """Return those of the default configuration, where there are several."""
    tops = {top(name) for name in names}
    default = next((top for top in _DEFAULT_DIRECTORIES if top in tops), None)
    if len(tops) > 1 and default is None:
        found = _listed(in_natural_order("/".join(top) for top in tops))
        raise SourceError(
            f"'{url}' has the split in {len(tops)} directories: {found}. Give the one that is "
            "meant as name (<config> in a spec), or name the files: data_files",
            again="no",
        )
    meant = default if len(tops) > 1 else next(iter(tops))
    return [name for name in names if top(name) == meant]


def _is_of(file: str, split: str) -> bool:
    """Whether a file is one of the split; what its own name says goes before its directories."""
    stem = file.rpartition("/")[2].removesuffix(SUFFIX)
    if stem == split or re.match(re.escape(split) + r"[-_. ]", stem):
        return True
    if words := _split_words(stem):
        return _usual(split) in words
    return any(_stands_for(directory, split) for directory in _dirs(file))


def _says_a_split(file: str) -> bool:
    return any(_split_words(part) for part in file.removesuffix(SUFFIX).split("/"))


def _split_words(text: str) -> set[str]:
    words = re.split(r"[^A-Za-z]+", text.lower())
    return {SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}


def _usual(split: str) -> str:
    return SPLIT_WORDS.get(split.lower(), split)


def _stands_for(directory: str, split: str) -> bool:
    word = directory.rpartition("=")[2]
    return _usual(word) == _usual(split) or _plain(word) == _plain(split)


def _above(dirs: Directories, split: str) -> Directories:
    """The directories above the one that stands for the split."""
    places = [n for n, directory in enumerate(dirs) if _stands_for(directory, split)]
    return dirs[: places[0]] if places else dirs


def _end_of(dirs: Directories, name: str | None) -> int:
    """How many directories lead to that of a configuration, it included; 0 if it is not there.

    It may be several: ``sample-10BT`` is ``sample/10BT``; or named as by Hive: ``subset=web``.
    """
    words = [directory.rpartition("=")[2] for directory in dirs]
    runs = (
        stop
        for start in range(len(dirs))
        for stop in range(start + 1, len(dirs) + 1)
        if name is not None and _plain("".join(words[start:stop])) == _plain(name)
    )
    return next(runs, 0)


def _plain(word: str) -> str:
    """Letters and digits alone: a directory is often spelled otherwise than what it stands for."""
    return "".join(filter(str.isalnum, word.casefold())) or word


def _dirs(file: str) -> Directories:
    return tuple(file.split("/")[:-1])


def _none_found(url: str, what: str, files: Sequence[RemoteFile]) -> SourceError:
    names = in_natural_order(file.name for file in files)
    usable = [name for name in names if name.endswith(SUFFIX)]
    lines = [f"'{url}' does not have {what}", f"There are {len(names)} files: {_listed(names)}"]
    if usable and len(usable) < len(names):
        lines[1] = f"There are {len(usable)} parquet files: {_listed(usable)}"
    if not usable:
        lines.append(
            f"{_ONLY_PARQUET}: the Hub has most datasets as such on the branch "
            "'refs/convert/parquet', to be given as revision"
        )
    else:
        lines.append("Give the split and the name that are meant, or the files: data_files")
    return SourceError("\n".join(lines), again="no")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(quoted, names[:_SHOWN])) + more


_ONLY_PARQUET = f"only {SUFFIX} files are read"
