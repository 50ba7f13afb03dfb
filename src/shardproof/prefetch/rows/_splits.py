"""Which files of a repository are those of a split, and in which order: as datasets reads them.

The dataset card says it, if it has configurations (`_card`); else the names of the files do
(`_patterns`). Where datasets would fail, or reads another format, nothing is guessed.
"""

from collections.abc import Mapping, Sequence

from shardproof._messages import quoted, shown, told
from shardproof.errors import SourceError
from shardproof.prefetch.rows._card import Config, config_of
from shardproof.prefetch.rows._formats import (
    SUFFIX,
    format_of,
    is_data,
    is_for_parquet,
    of_parquet,
)
from shardproof.prefetch.rows._patterns import default_patterns, has_magic, matching
from shardproof.prefetch.sources._source import RemoteFile

__all__ = ["chosen_files", "refuse_script", "split_files"]

_LEGACY_INFOS = "dataset_infos.json"
_SHOWN = 20
_MAX_LOOKS = 50_000_000  # a minute

Splits = dict[str, list[str]]


def chosen_files(files: Sequence[RemoteFile], wanted: Sequence[str], url: str) -> list[RemoteFile]:
    """Return the files that were asked for: names in the order given, those of a pattern sorted.

    Args:
        files: What is there; nothing for a source that doesn't list, which is taken at its word.
        wanted: Names, or patterns with ``*``, ``**``, ``?`` or ``[...]``.
        url: Where they are.

    Raises:
        SourceError: One of them is not there; all of those in one error.
        ValueError: One is meant twice, or is no pattern.
    """
    there = {file.name: file for file in files}
    if not files:
        there = {name: RemoteFile(name) for name in wanted if not has_magic(name)}
    names: list[str] = []
    missing = []
    for name in wanted:
        found = [name] if name in there else _meant(name, sorted(there))
        names += found
        if not found:
            missing.append(name)
    if missing:
        raise _none_found(url, f"{len(missing)} of data_files: {_listed(missing)}", files)
    if twice := _twice(names):
        raise ValueError(f"data_files: these are meant more than once: {_listed(twice)}")
    if other := [name for name in names if not name.endswith(SUFFIX)]:
        raise ValueError(f"data_files: {_ONLY_PARQUET}, found {_listed(other)}")
    return [there[name] for name in names]


def _meant(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        return matching(pattern, names)
    except ValueError as error:
        raise ValueError(f"data_files: {told(error)}") from None


def _twice(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def refuse_script(files: Sequence[RemoteFile], repo_id: str, url: str) -> None:
    """Raise where a repository has a script of its name: that says which rows there are.

    Raises:
        SourceError: It has one.
    """
    script = f"{repo_id.rpartition('/')[2]}.py"
    if any(file.name == script for file in files):
        problem = f"its rows are what the script {quoted(script)} makes, which is not run here"
        raise SourceError(f"'{shown(url)}': {problem}. {_CONVERTED}", again="no")


def split_files(
    files: Sequence[RemoteFile],
    split: str,
    name: str | None,
    url: str,
    configs: Sequence[Config] = (),
    *,
    told: str | None = None,
) -> list[RemoteFile]:
    """Return the parquet files of a split, in the order in which datasets reads them.

    Args:
        files: What is there.
        split: ``"train"``, ``"test"``, ...
        name: Of a configuration of the card; or of a directory, where the card has none. None for
            the default one, or for the whole repository.
        url: Where they are.
        configs: What the card says.
        told: The configuration that it tells of elsewhere; see `told_default`.

    Raises:
        SourceError: There are none, or it can't be told which; the text says what is there.
    """
    there = {file.name: file for file in files}
    repository = _Repository(sorted(there), url)
    if _LEGACY_INFOS in there:  # and may tell of others
        told = None
    found = repository.of_card(configs, name, told) if configs else repository.of_names(name)
    if split not in found:
        what = f"the split {quoted(split)}" + (f" of {quoted(name)}" if name else "")
        raise _none_found(url, what, files, found)
    names = found[split]
    _refuse_unreadable(names, split, url)
    return [there[file] for file in names]


def _refuse_unreadable(names: Sequence[str], split: str, url: str) -> None:
    problem = None
    if not names:
        problem = "no file fits its patterns"
    elif twice := _twice(names):
        problem = f"these files are meant more than once: {_listed(twice)}"
    elif other := [name for name in names if not name.endswith(SUFFIX)]:
        problem = f"{_ONLY_PARQUET}, found {_listed(other)}"
    if problem:
        raise SourceError(
            f"'{shown(url)}', the split {quoted(split)}: {problem}. {_TO_DO}", again="no"
        )


class _Repository:
    """The names of all files of a repository, sorted, and what patterns mean among them."""

    def __init__(self, names: Sequence[str], url: str) -> None:
        self._names, self._url = names, url

    def of_card(self, configs: Sequence[Config], name: str | None, told: str | None) -> Splits:
        """Return the files of each split of a configuration.

        The first one says in which format all are; for that it is looked for below the root, as
        datasets does.
        """
        first, config = configs[0], config_of(configs, name, self._url, told)
        where = f"the configuration {quoted(config.name)}"
        self._refuse_those_without_files([each for each in configs if each.patterns is None])
        if config.unread:
            problem = f"{where} has {', '.join(config.unread)}, which is not read here"
            raise self._refusal(problem)
        self._refuse_other_formats(self._resolved(first.patterns, "", "the first configuration"))
        return self._resolved(config.patterns, config.directory, where)

    def _refuse_those_without_files(self, configs: Sequence[Config]) -> None:
        """Refuse the first that has none; each directory is looked for once."""
        by_directory = {config.directory: config for config in reversed(configs)}
        n_patterns = sum(map(has_magic, by_directory))  # others are found without a look at all
        if n_patterns * len(self._names) > _MAX_LOOKS:
            problem = f"the card has too many patterns for {len(self._names)} files"
            raise self._refusal(f"{problem}, as directories of configurations")
        for config in reversed(by_directory.values()):
            self._refuse_empty(config)

    def _refuse_empty(self, config: Config) -> None:
        where = f"the card's configuration {quoted(config.name)}"
        if not self._resolved({"": ["**"]}, config.directory, where)[""]:
            raise self._refusal(f"{where} has no files")

    def of_names(self, name: str | None) -> Splits:
        """Return the files of each split, as far as the names of files and directories say."""
        directory = "" if name is None else name
        is_there = any(file.startswith(f"{directory}/") for file in self._names)
        if directory and not is_there:
            if name != "default":  # as datasets calls what has no configurations
                raise self._no_directory(directory)
            directory = ""
        found = self._resolved(None, directory, f"the directory {quoted(directory)}")
        self._refuse_other_formats(found)
        return {split: list(filter(is_for_parquet, files)) for split, files in found.items()}

    def _no_directory(self, name: str) -> SourceError:
        tops = sorted({file.partition("/")[0] for file in self._names if "/" in file})
        where = f"'{shown(self._url)}'"
        problem = f"{where} does not have the configuration {quoted(name)}: its card has none"
        to_do = f"a directory is taken for one, and there are: {_listed(tops) or 'none'}"
        return SourceError(f"{problem}; {to_do}", again="no")

    def _resolved(
        self, patterns: Mapping[str, Sequence[str]] | None, directory: str, where: str
    ) -> Splits:
        try:
            if patterns is None:
                patterns = default_patterns(self._names, directory)
            if sum(map(len, patterns.values())) * len(self._names) > _MAX_LOOKS:
                raise ValueError(f"it has too many patterns for {len(self._names)} files")
            return {
                split: [file for pattern in some for file in self._of(pattern, directory)]
                for split, some in patterns.items()
            }
        except ValueError as error:
            raise self._refusal(f"{where}: {told(error)}") from None

    def _of(self, pattern: str, directory: str) -> list[str]:
        full = f"{directory}/{pattern}" if directory else pattern
        found = list(filter(is_data, matching(full, self._names)))
        if not found and not has_magic(pattern):
            raise ValueError(f"there is no file {quoted(pattern)}")
        return found

    def _refuse_other_formats(self, splits: Splits) -> None:
        if not of_parquet(splits):
            formats = {split: format_of(names) for split, names in splits.items()}
            shown = ", ".join(f"{quoted(split)}: {suffix}" for split, suffix in formats.items())
            raise self._refusal(f"{_ONLY_PARQUET}, and of its splits ({shown}). {_CONVERTED}")

    def _refusal(self, problem: str) -> SourceError:
        return SourceError(f"'{shown(self._url)}': {problem}. {_TO_DO}", again="no")


def _none_found(
    url: str, what: str, files: Sequence[RemoteFile], splits: Sequence[str] | Splits = ()
) -> SourceError:
    names = sorted(file.name for file in files)
    usable = [name for name in names if name.endswith(SUFFIX)]
    lines = [f"'{shown(url)}' does not have {what}"]
    if splits:
        lines.append(f"There are the splits: {_listed(list(splits))}")
    lines.append(f"There are {len(names)} files: {_listed(names)}")
    if usable and len(usable) < len(names):
        lines[-1] = f"There are {len(usable)} parquet files: {_listed(usable)}"
    if not usable:
        lines.append(f"{_ONLY_PARQUET}. {_CONVERTED}")
    else:
        lines.append("Give the split and the name that are meant, or the files: data_files")
    return SourceError("\n".join(lines), again="no")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(quoted, names[:_SHOWN])) + more


_ONLY_PARQUET = f"only {SUFFIX} files are read"
_CONVERTED = (
    "The Hub has most datasets as such on the branch 'refs/convert/parquet', to be given as "
    "revision"
)
_TO_DO = "Name the files: data_files"
