"""What a dataset card says of configurations and splits: the field ``configs`` of its YAML.

As https://huggingface.co/docs/hub/datasets-manual-configuration has it, and as the library datasets
reads it. What can't be understood is refused, since a guess would deliver other rows.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from shardproof._base.messages import quoted, shown, told
from shardproof._base.yaml import NotYamlError, yaml_field
from shardproof.datasets.rows._conventions import SPLIT_NAME
from shardproof.errors import SourceError

CARD_FILES = ("README.md", ".huggingface.yaml")
"""Where a card is; the second goes before the first."""

_BLOCK = re.compile(r"\A\s*---(?:\r\n|\r|\n)(.*?)(?:\r\n|\r|\n)---[ \t]*(?:\r\n|\n|\Z)", re.DOTALL)
_NO_NAME = re.compile(r"[<>:/\\|?*]")
_MISSING = object()
_UNREAD = ("columns", "filters", "fragment_scan_options", "on_bad_files")
_TO_DO = "Mend the card, or name the files: data_files"
_SHOWN = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """A configuration, which the Hub calls a subset.

    Attributes:
        name: What it is called.
        directory: What its patterns are below; empty for the repository.
        patterns: Of each split; None where the card leaves it to the names of the files.
        is_default: Whether the card calls it so.
        unread: Fields that change the rows, and are not read here.
    """

    name: str
    directory: str = ""
    patterns: Mapping[str, Sequence[str]] | None = None
    is_default: bool = False
    unread: tuple[str, ...] = ()


def yaml_block(text: str) -> str:
    """Return what stands between the lines ``---`` at the beginning of a README; or nothing."""
    found = _BLOCK.match(text)
    return found[1] if found else ""


def configs_of(texts: Mapping[str, str], url: str) -> list[Config]:
    """Return the configurations of a repository, in their order; none where its card has none.

    Args:
        texts: The YAML of each of `CARD_FILES` that there is.
        url: Of the repository, for the error that says where the card can't be understood.

    Example:
        >>> card = "configs: [{config_name: en, data_files: en/*.parquet}]"
        >>> configs_of({"README.md": card}, "hf://datasets/org/name")
        [Config(name='en', directory='', patterns={'train': ['en/*.parquet']}, ...)]
    """
    found, where = _field(texts, "configs", url)
    return _configs(found, where) if found else []


def _field(
    texts: Mapping[str, str], field: str, url: str, only: str | None = None
) -> tuple[Any, str]:
    """Return what the first file that has a field says, and what an error calls that file."""
    for name in reversed(CARD_FILES):
        where = f"the dataset card '{shown(url)}/{shown(name)}'"
        try:
            found = yaml_field(texts.get(name, ""), field, where, _MISSING, only=only)
        except NotYamlError as error:
            raise SourceError(told(error), kind="unusable") from None
        if found is not _MISSING:
            return found, where
    return None, ""


def told_default(texts: Mapping[str, str], url: str) -> str | None:
    """Return the only configuration that ``dataset_info`` names; None if there is not one.

    Where no configuration is the default one, it is.

    Example:
        >>> told_default({"README.md": "dataset_info: {config_name: en}"}, "hf://datasets/org/name")
        'en'
    """
    found, where = _field(texts, "dataset_info", url, only="config_name")
    infos = found if isinstance(found, list) else [found] if isinstance(found, dict) else []
    names: list[str] = []
    for n, info in enumerate(infos):
        name = info.get("config_name", "default") if isinstance(info, dict) else None
        if not isinstance(name, str):
            _refuse(where, f"dataset_info[{n}].config_name", "a name", name)
        names.append(name)
    return names[0] if len(set(names)) == 1 else None


def _configs(value: Any, where: str) -> list[Config]:
    if not isinstance(value, list):
        _refuse(where, "configs", "a list", value)
    configs = []
    for n, item in enumerate(value):
        field, patterns = f"configs[{n}]", None
        if not isinstance(item, dict):
            _refuse(where, field, "fields, of which one is config_name", item)
        name, directory = item.get("config_name"), item.get("data_dir") or ""
        if not isinstance(name, str) or not name or _NO_NAME.search(name):
            _refuse(where, f"{field}.config_name", "a name that can be that of a file", name)
        if not isinstance(directory, str):
            _refuse(where, f"{field}.data_dir", "a directory", directory)
        if not isinstance(item.get("default") or False, bool):
            _refuse(where, f"{field}.default", "true or false", item["default"])
        if "data_files" in item:
            patterns = _patterns(item["data_files"], where, f"{field}.data_files")
        unread = tuple(unread for unread in _UNREAD if item.get(unread) is not None)
        is_default = bool(item.get("default"))
        configs.append(Config(name, directory.removesuffix("/"), patterns, is_default, unread))
    times = Counter(config.name for config in configs)
    if twice := [name for name, n in times.items() if n > 1]:
        _refuse(where, "configs", "configurations of different names", twice[0])
    return configs


def _patterns(value: Any, where: str, field: str) -> dict[str, list[str]]:
    if isinstance(value, str):
        return {"train": [value]}
    if not isinstance(value, list):
        _refuse(where, field, "a path, or a list of paths or of splits", value)
    if not any(isinstance(item, dict) for item in value):
        return {"train": _paths(value, where, field)}
    patterns: dict[str, list[str]] = {}
    for n, item in enumerate(value):
        at = f"{field}[{n}]"
        if not isinstance(item, dict) or set(item) != {"split", "path"}:
            _refuse(where, at, "the fields split and path, and no others", item)
        split, path = item["split"], item["path"]
        if not isinstance(split, str) or not SPLIT_NAME.fullmatch(split):
            _refuse(where, f"{at}.split", "a name of letters, digits, '_' and '.'", split)
        paths = _paths([path] if isinstance(path, str) else path, where, f"{at}.path")
        if split in patterns:
            _refuse(where, field, "splits of different names", split)
        patterns[split] = paths
    return patterns


def _paths(value: Any, where: str, field: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(path, str) and path for path in value):
        _refuse(where, field, "a path, or a list of paths", value)
    return value


def _refuse(where: str, field: str, expected: str, found: object) -> NoReturn:
    problem = f"expected {expected}, found {quoted(str(found))}"
    raise SourceError(f"{where}, {field}: {problem}. {_TO_DO}", kind="unusable")


def config_of(
    configs: Sequence[Config], name: str | None, url: str, told: str | None = None
) -> Config:
    """Return the configuration of a name; without a name, the default one.

    That is the only one; else the one that the card calls so, or whose name is ``default``; else
    the one that `told_default` returned.
    """
    defaults = [config for config in configs if config.is_default or config.name == "default"]
    if len(configs) == 1:
        defaults = list(configs)
    defaults = defaults or [config for config in configs if config.name == told]
    if len(defaults) > 1:
        found = " and ".join(quoted(config.name) for config in defaults[:2])
        raise SourceError(
            f"the card of '{shown(url)}' has two default configurations: {found}", kind="unusable"
        )
    meant = [config for config in configs if config.name == name] if name else defaults
    if not meant:
        what = f"no configuration {quoted(name)}" if name else "no default configuration"
        problem = f"its card has {what}, but: {first_of([config.name for config in configs])}"
        to_do = "Give one of them as name (<config> in a spec)"
        raise SourceError(f"'{shown(url)}' does not have it: {problem}. {to_do}", kind="unusable")
    return meant[0]


def first_of(names: Sequence[str]) -> str:
    """Return names for a message; of very many only the first."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(quoted, names[:_SHOWN])) + more
