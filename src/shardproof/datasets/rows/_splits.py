"""Which files of a repository are a split's, in the order of datasets: by its card or their names.

Where datasets would fail, or reads another format, nothing is guessed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from shardproof._base.messages import quoted, quoted_first, shown, told
from shardproof._base.names import MAX_PATH_BYTES
from shardproof.datasets.rows._card import UNREAD, Config, config_of
from shardproof.datasets.rows._file_names import (
    PARQUET,
    SUFFIX,
    Budget,
    default_patterns,
    format_of,
    has_magic,
    is_data,
    is_for_parquet,
    meant,
)
from shardproof.errors import SourceError
from shardproof.fetching.sources import RemoteFile

_LEGACY_INFOS = "dataset_infos.json"

Splits = dict[str, list[str]]


def chosen_files(files: Sequence[RemoteFile], wanted: Sequence[str], url: str) -> list[RemoteFile]:
    """Return the files that were asked for: names in the order given, those of a pattern sorted."""
    there = _by_name(files, url)
    if not files:
        there = {name: RemoteFile(name) for name in wanted if not has_magic(name)}
    names: list[str] = []
    missing = []
    for name in wanted:
        try:
            found = [name] if name in there else [*meant(name, sorted(there))]
        except ValueError as error:
            raise ValueError(f"data_files: {told(error)}") from None
        names += found
        if not found:
            missing.append(name)
    if missing:
        raise _none_found(url, f"{len(missing)} of data_files: {quoted_first(missing)}", files)
    if problem := _why_unusable(names):
        raise ValueError(f"data_files: {problem}")
    return [there[name] for name in names]


def _by_name(files: Sequence[RemoteFile], url: str) -> dict[str, RemoteFile]:
    """Return files by name; refuse names too long to be compared with patterns."""
    there = {file.name: file for file in files}
    longest = max(there, key=len, default="")
    if len(longest) > MAX_PATH_BYTES:
        problem = f"which is refused: its path is over {MAX_PATH_BYTES} bytes"
        raise SourceError(f"'{shown(url)}' lists {quoted(longest)}, {problem}", kind="unusable")
    return there


def _why_unusable(names: Sequence[str]) -> str | None:
    """Return what is wrong with the files that are meant."""
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        return f"these files are meant more than once: {quoted_first(twice)}"
    other = [name for name in names if not name.endswith(SUFFIX)]
    return f"{_ONLY_PARQUET}, found {quoted_first(other)}" if other else None


def refuse_script(files: Sequence[RemoteFile], repo_id: str, url: str) -> None:
    """Refuse a repository with a script of its name: that would say which rows there are."""
    script = f"{repo_id.rpartition('/')[2]}.py"
    if any(file.name == script for file in files):
        problem = f"its rows are what the script {quoted(script)} makes, which is not run here"
        raise SourceError(f"'{shown(url)}': {problem}. {_CONVERTED}", kind="unusable")


def split_files(
    files: Sequence[RemoteFile],
    split: str,
    name: str | None,
    url: str,
    configs: Sequence[Config] = (),
    *,
    told: str | None = None,
) -> list[RemoteFile]:
    """Return the parquet files of a split, in the order in which datasets reads them."""
    there = _by_name(files, url)
    repository = _Repository(sorted(there), url)
    if _LEGACY_INFOS in there:  # which may name others
        told = None
    found = repository.of_card(configs, name, told) if configs else repository.of_names(name)
    if split not in found:
        what = f"the split {quoted(split)}" + (f" of {quoted(name)}" if name else "")
        raise _none_found(url, what, files, found)
    names = found[split]
    if problem := _why_unusable(names) if names else "no file fits its patterns":
        problem = f"'{shown(url)}', the split {quoted(split)}: {problem}. {_TO_DO}"
        raise SourceError(problem, kind="unusable")
    return [there[file] for file in names]


class _Repository:
    """The names of all files of a repository, sorted, and what patterns mean among them."""

    def __init__(self, names: Sequence[str], url: str) -> None:
        self._names, self._url = names, url
        self._budget = Budget()

    def of_card(self, configs: Sequence[Config], name: str | None, told: str | None) -> Splits:
        """Return the files of each split of a configuration."""
        first, config = configs[0], config_of(configs, name, self._url, told)
        where = f"the configuration {quoted(config.name)}"
        self._refuse_those_without_files([each for each in configs if each.patterns is None])
        if unread := [each for each in UNREAD if getattr(config, each) is not None]:
            raise self._refusal(f"{where} has {', '.join(unread)}, which is not read here")
        self._refuse_other_formats(self._resolved(first.patterns, "", "the first configuration"))
        return self._resolved(config.patterns, config.directory, where)

    def _refuse_those_without_files(self, configs: Sequence[Config]) -> None:
        """Refuse the first configuration without files; each directory is asked for once."""
        by_directory = {config.directory: config for config in reversed(configs)}
        for config in reversed(by_directory.values()):
            where = f"the card's configuration {quoted(config.name)}"
            pattern = f"{config.directory}/**" if config.directory else "**"
            try:
                has_files = any(map(is_data, meant(pattern, self._names, self._budget)))
            except ValueError as error:
                raise self._refusal(f"{where}: {told(error)}") from None
            if not has_files:
                raise self._refusal(f"{where} has no files")

    def of_names(self, name: str | None) -> Splits:
        """Return the files of each split, as far as the names of files and directories say."""
        directory = name or ""
        if directory and not any(file.startswith(f"{directory}/") for file in self._names):
            if name != "default":  # as datasets calls what has no configurations
                tops = sorted({file.partition("/")[0] for file in self._names if "/" in file})
                problem = (
                    f"'{shown(self._url)}' does not have the configuration {quoted(directory)}: "
                    "its card has none; a directory is taken for one, and there are: "
                    f"{quoted_first(tops) or 'none'}"
                )
                raise SourceError(problem, kind="unusable")
            directory = ""
        found = self._resolved(None, directory, f"the directory {quoted(directory)}")
        self._refuse_other_formats(found)
        return {split: list(filter(is_for_parquet, files)) for split, files in found.items()}

    def _resolved(
        self, patterns: Mapping[str, Sequence[str]] | None, directory: str, where: str
    ) -> Splits:
        start = f"{directory}/" if directory else ""
        try:
            if patterns is None:
                budget = self._budget if has_magic(directory) else None
                patterns = default_patterns(self._names, directory, budget)
            splits: Splits = {split: [] for split in patterns}
            for split, some in patterns.items():
                for pattern in some:
                    all_found = meant(start + pattern, self._names, self._budget)
                    found = list(filter(is_data, all_found))
                    if not found and not has_magic(pattern):
                        raise ValueError(f"there is no file {quoted(pattern)}")
                    splits[split] += found
        except ValueError as error:
            raise self._refusal(f"{where}: {told(error)}") from None
        return splits

    def _refuse_other_formats(self, splits: Splits) -> None:
        formats = {split: format_of(names) for split, names in splits.items()}
        if not all(suffix in PARQUET for suffix in formats.values()):
            shown = ", ".join(f"{quoted(split)}: {suffix}" for split, suffix in formats.items())
            raise self._refusal(f"{_ONLY_PARQUET}, and of its splits ({shown}). {_CONVERTED}")

    def _refusal(self, problem: str) -> SourceError:
        return SourceError(f"'{shown(self._url)}': {problem}. {_TO_DO}", kind="unusable")


def _none_found(
    url: str, what: str, files: Sequence[RemoteFile], splits: Sequence[str] | Splits = ()
) -> SourceError:
    names = sorted(file.name for file in files)
    usable = [name for name in names if name.endswith(SUFFIX)]
    lines = [f"'{shown(url)}' does not have {what}"]
    if splits:
        lines.append(f"There are the splits: {quoted_first(list(splits))}")
    some, kind = (usable, "parquet files") if 0 < len(usable) < len(names) else (names, "files")
    lines.append(f"There are {len(some)} {kind}: {quoted_first(some)}")
    to_do = "Give the split and the name that are meant, or the files: data_files"
    lines.append(to_do if usable else f"{_ONLY_PARQUET}. {_CONVERTED}")
    return SourceError("\n".join(lines), kind="unusable")


_ONLY_PARQUET = f"only {SUFFIX} files are read"
_CONVERTED = (
    "The Hub has most datasets as such on the branch 'refs/convert/parquet', to be given as "
    "revision"
)
_TO_DO = "Name the files: data_files"
