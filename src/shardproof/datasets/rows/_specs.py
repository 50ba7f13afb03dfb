"""Dataset specs: which data a run reads, in one line of its configuration."""

import dataclasses
import re
import unicodedata
from collections.abc import Iterator
from typing import ClassVar

from shardproof._base.arguments import accepted_fields, checked
from shardproof._base.messages import listed, quoted, told
from shardproof._base.names import refusals

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "dev": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
"""The usual names of splits and what each means, in the order in which datasets looks for them.

From https://huggingface.co/docs/hub/datasets-file-names-and-splits.
"""

FORMS = """\
Expected, with commas between several:
  hf:<repo_id>[@revision][:split][:text_key]
  hf:<repo_id>[@revision]:<config>:<split>[:text_key]
  txt:<path>[:text_key]"""

_MAX_CHARACTERS = 100_000
_MAX_FIELD = 255
_REPO = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_.\-]*[0-9A-Za-z_])?")
_MAX_REPO = 96  # of the Hugging Face Hub: huggingface_hub.utils.validate_repo_id


@dataclasses.dataclass(frozen=True, slots=True)
class HubSpec:
    """A split of a dataset on the Hugging Face Hub.

    Attributes:
        repo_id: ``"owner/name"``, or ``"name"`` alone.
        name: Of the configuration, which the Hub calls a subset; None for the default.
        split: Of the dataset.
        text_key: The column that is meant.
        revision: Branch, tag or commit; None for the default branch.
        spec: As it was written, or would be. No spec can have a part with ``,`` or ``:`` in it, or
            with white space at an end.
        kind: What the spec begins with.

    Raises:
        TypeError: A part of the wrong type.
        ValueError: A part that can't be what it is meant for; all of them in one error.

    Example:
        >>> HubSpec("owner/name", split="test").spec
        'hf:owner/name:test:text'
    """

    repo_id: str
    name: str | None = None
    split: str = "train"
    text_key: str = "text"
    revision: str | None = None
    spec: str = dataclasses.field(default="", compare=False)
    kind: ClassVar[str] = "hf"

    def __post_init__(self) -> None:
        accepted_fields(self)
        parts = self.repo_id.split("/") if self.repo_id else []
        is_one = len(parts) <= 2 and all(map(_REPO.fullmatch, parts))
        problems = []
        if not parts:
            problems.append("the repo_id is missing")
        elif not is_one or len(self.repo_id) > _MAX_REPO or re.search(r"--|\.\.", self.repo_id):
            found = quoted(self.repo_id)
            problems.append(f"repo_id: expected <owner>/<name> or <name>, found {found}")
        problems += [
            *([] if self.name is None else _problems_of_directory("config", self.name)),
            *_problems_of_directory("split", self.split),
            *_problems_of_text("text key", self.text_key, _MAX_FIELD),
        ]
        revisions = [] if self.revision is None else [self.revision]
        problems += [
            f"revision {quoted(name)}: {reason}" for _, name, reason in refusals(revisions)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        if not self.spec:
            repo = self.repo_id + (f"@{self.revision}" if self.revision else "")
            fields = [repo, self.split, self.text_key]
            # An empty config, where one of two fields would be taken for it.
            is_astray = self.text_key in SPLIT_WORDS or any(":" in field for field in fields)
            if self.name is not None or is_astray:
                fields.insert(1, self.name or "")
            object.__setattr__(self, "spec", ":".join(["hf", *fields]))

    def __str__(self) -> str:
        return self.spec


@dataclasses.dataclass(frozen=True, slots=True)
class TextSpec:
    """Local text files, whose lines are the rows.

    Attributes:
        path: Of a file, or a pattern with ``*``, ``?`` or ``[...]`` in its last part.
        text_key: What the only column is called.
        spec: As for `HubSpec`.
        kind: What the spec begins with.

    Raises:
        TypeError: A part of the wrong type.
        ValueError: A part that can't be what it is meant for; all of them in one error.

    Example:
        >>> TextSpec("corpus/*.txt").text_key
        'text'
    """

    path: str
    text_key: str = "text"
    spec: str = dataclasses.field(default="", compare=False)
    kind: ClassVar[str] = "txt"

    def __post_init__(self) -> None:
        accepted_fields(self)
        problems = [
            *_problems_of_text("path", self.path, 4095),
            *_problems_of_text("text key", self.text_key, _MAX_FIELD),
        ]
        if problems:
            raise ValueError("; ".join(problems))
        if not self.spec:
            object.__setattr__(self, "spec", f"txt:{self.path}:{self.text_key}")

    def __str__(self) -> str:
        return self.spec


@checked
def parse_dataset_specs(text: str) -> list[HubSpec | TextSpec]:
    """Return what each of several dataset specs means, in order.

    Args:
        text: Specs with commas between them. White space around a spec, and nothing between two
            commas or at the end, count for nothing; a field that is left empty has its default.

    Raises:
        ValueError: A spec that means nothing, or two things; or there is none. All of them in one
            error, with their places and the forms.

    Example:
        >>> first, second = parse_dataset_specs("hf:owner/name:en:train:content, txt:notes.txt")
        >>> first.name, first.split, first.text_key
        ('en', 'train', 'content')
        >>> second.path
        'notes.txt'
    """
    if len(text) > _MAX_CHARACTERS:
        problem = f"expected at most {_MAX_CHARACTERS} characters, found {len(text)}"
        raise ValueError(f"dataset specs: {problem}\n{FORMS}")
    specs: list[HubSpec | TextSpec] = []
    problems: list[str] = []
    start = 0
    for part in text.split(","):
        spec = part.strip()
        if spec:
            try:
                specs.append(_parsed(spec))
            except ValueError as error:
                at = start + part.index(spec) + 1
                problems.append(f"at character {at}, {quoted(spec)}: {told(error)}")
        start += len(part) + 1
    if problems:
        raise ValueError(f"{listed('dataset specs that can not be read', problems)}\n{FORMS}")
    if not specs:
        raise ValueError(f"dataset specs: expected one or more, found none\n{FORMS}")
    return specs


def _parsed(spec: str) -> HubSpec | TextSpec:
    kind, *fields = spec.split(":")
    fields = [field.strip() for field in fields]
    match kind.strip().lower():
        case "hf":
            if len(fields) > 4:
                raise ValueError(f"expected at most 4 fields after 'hf', found {len(fields)}")
            repo_id, at, revision = (fields or [""])[0].partition("@")
            config, split, text_key = _meant(fields[1:])
            return HubSpec(
                repo_id,
                name=config or None,
                split=split or "train",
                text_key=text_key or "text",
                revision=revision if at else None,
                spec=spec,
            )
        case "txt":
            if len(fields) > 2:
                raise ValueError(
                    f"expected at most 2 fields after 'txt', found {len(fields)}; a path with ':' "
                    "or ',' can't be written in a spec: make it in Python, TextSpec(path)"
                )
            path, text_key = [*fields, "", ""][:2]
            return TextSpec(path, text_key or "text", spec)
    raise ValueError(f"expected it to begin with 'hf:' or 'txt:', found {quoted(kind)}")


def _meant(fields: list[str]) -> tuple[str, str, str]:
    """Return which field is the config, the split, and the text key (docs/datasets.md)."""
    # Of two, those who made this form up take the second for a text key; which is never meant where
    # it is the usual name of a split.
    if len(fields) == 3:
        return fields[0], fields[1], fields[2]
    if len(fields) < 2 or fields[1] not in SPLIT_WORDS:
        split, text_key = [*fields, "", ""][:2]
        return "", split, text_key
    first, second = fields
    if not first or first in SPLIT_WORDS:
        raise ValueError(
            f"is {quoted(second)} the split or the text key? Write the split as "
            f"'<repo_id>:{first}:{second}:text', or the text key as '<repo_id>::{first}:{second}'"
        )
    return first, second, ""


def _problems_of_directory(what: str, name: str) -> Iterator[str]:
    """Yield what keeps a name from being that of a directory."""
    for _, _, reason in refusals([name]):
        yield f"{what} {quoted(name)}: {reason}"
    if "/" in name:
        yield f"{what} {quoted(name)}: it has a slash"


def _problems_of_text(what: str, text: str, limit: int) -> Iterator[str]:
    """Yield what keeps a text from being a path or the name of a column."""
    if not text:
        yield f"the {what} is missing"
    elif len(text) > limit:
        yield f"{what} {quoted(text)}: it is over {limit} characters"
    elif any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in text):
        yield f"{what} {quoted(text)}: it has a control character or half of one"
