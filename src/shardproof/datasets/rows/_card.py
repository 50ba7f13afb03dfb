"""What a dataset card says of configurations and splits: the field ``configs`` of its YAML.

As https://huggingface.co/docs/hub/datasets-manual-configuration has it, and as the library datasets
reads it. What can't be understood is refused, since a guess would deliver other rows.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from shardproof._base.messages import quoted, quoted_first, shown, told
from shardproof._base.yaml import NotYamlError, YamlReader
from shardproof.datasets.rows._file_names import SPLIT_NAME
from shardproof.errors import SourceError

CARD_FILES = ("README.md", ".huggingface.yaml")  # where a card is; the second goes before the first

_BLOCK = re.compile(r"\A\s*---(?:\r\n|\r|\n)(.*?)(?:\r\n|\r|\n)---[ \t]*(?:\r\n|\n|\Z)", re.DOTALL)
_MISSING = object()
UNREAD = ("columns", "filters", "fragment_scan_options", "on_bad_files")
"""Fields of a configuration that change the rows, and are not read here."""

_TO_DO = "Mend the card, or name the files: data_files"
_Path = Annotated[str, msgspec.Meta(min_length=1)]


class _Split(msgspec.Struct, forbid_unknown_fields=True):
    split: Annotated[str, msgspec.Meta(pattern=rf"\A{SPLIT_NAME.pattern}\Z")]
    path: _Path | list[_Path]


class Config(msgspec.Struct, frozen=True, rename={"name": "config_name"}):
    """A configuration, which the Hub calls a subset; further fields of a card are passed over."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[^<>:/\\|?*]+\Z")]
    data_dir: str | None = None
    data_files: _Path | list[_Path | _Split] | UnsetType = UNSET
    default: bool | None = None
    columns: Any = None
    filters: Any = None
    fragment_scan_options: Any = None
    on_bad_files: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.data_files, list):
            splits = {each.split for each in self.data_files if isinstance(each, _Split)}
            if splits and len(splits) < len(self.data_files):
                raise ValueError("data_files: expected paths, or splits of different names")

    @property
    def directory(self) -> str:
        """Below which its patterns are."""
        return (self.data_dir or "").removesuffix("/")

    @property
    def patterns(self) -> dict[str, list[str]] | None:
        """Those of each split; None where the names of files tell."""
        if isinstance(self.data_files, UnsetType):
            return None
        some = self.data_files if isinstance(self.data_files, list) else [self.data_files]
        paths = {each.split: each.path for each in some if isinstance(each, _Split)}
        paths = paths or {"train": [each for each in some if isinstance(each, str)]}
        return {split: [path] if isinstance(path, str) else path for split, path in paths.items()}


def yaml_block(text: str) -> str:
    """Return what stands between the lines ``---`` at the beginning of a README; or nothing."""
    found = _BLOCK.match(text)
    return found[1] if found else ""


def configs_of(texts: Mapping[str, str], url: str) -> list[Config]:
    """Return the configurations that the YAML of `CARD_FILES` has, in their order."""
    found, where = _field(texts, "configs", url)
    try:
        items = msgspec.convert(found or [], list[Config])
    except msgspec.ValidationError as error:
        raise SourceError(f"{where}, configs: {told(error)}. {_TO_DO}", kind="unusable") from None
    if twice := [name for name, n in Counter(each.name for each in items).items() if n > 1]:
        problem = f"configs: expected different names, found {quoted(twice[0])} twice"
        raise SourceError(f"{where}, {problem}. {_TO_DO}", kind="unusable")
    return items


def _field(
    texts: Mapping[str, str], field: str, url: str, only: str | None = None
) -> tuple[Any, str]:
    """Return what the first file that has a field says, and what an error calls that file."""
    for name in reversed(CARD_FILES):
        where = f"the dataset card '{shown(url)}/{shown(name)}'"
        try:
            found = YamlReader(where, only=only).field(texts.get(name, ""), field, _MISSING)
        except NotYamlError as error:
            raise SourceError(told(error), kind="unusable") from None
        if found is not _MISSING:
            return found, where
    return None, ""


def told_default(texts: Mapping[str, str], url: str) -> str | None:
    """Return the only configuration that ``dataset_info`` names; None if there is not one."""
    found, where = _field(texts, "dataset_info", url, only="config_name")
    infos = found if isinstance(found, list) else [found] if isinstance(found, dict) else []
    names: list[str] = []
    for n, info in enumerate(infos):
        name = info.get("config_name", "default") if isinstance(info, dict) else None
        if not isinstance(name, str):
            problem = f"dataset_info[{n}].config_name: expected a name, found {quoted(str(name))}"
            raise SourceError(f"{where}, {problem}. {_TO_DO}", kind="unusable")
        names.append(name)
    return names[0] if len(set(names)) == 1 else None


def config_of(configs: Sequence[Config], name: str | None, url: str, told: str | None) -> Config:
    """Return the configuration of a name; without one, the only one, the default, or ``told``."""
    defaults = [config for config in configs if config.default or config.name == "default"]
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
        problem = f"its card has {what}, but: {quoted_first([config.name for config in configs])}"
        to_do = "Give one of them as name (<config> in a spec)"
        raise SourceError(f"'{shown(url)}' does not have it: {problem}. {to_do}", kind="unusable")
    return meant[0]
