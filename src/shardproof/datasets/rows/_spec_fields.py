"""What the fields of a dataset spec may be: they become paths, addresses and messages."""

import re
import unicodedata
from collections.abc import Iterator

from shardproof._base.messages import quoted
from shardproof._base.names import refusals

__all__ = [
    "problems_of_directory",
    "problems_of_repo",
    "problems_of_revision",
    "problems_of_text",
]

_REPO = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_.\-]*[0-9A-Za-z_])?")
_MAX_REPO = 96  # of the Hugging Face Hub: huggingface_hub.utils.validate_repo_id


def problems_of_repo(repo_id: str) -> Iterator[str]:
    """Yield what keeps a text from naming a repository of the Hub."""
    if not repo_id:
        yield "the repo_id is missing"
        return
    parts = repo_id.split("/")
    is_one = len(parts) <= 2 and all(map(_REPO.fullmatch, parts)) and len(repo_id) <= _MAX_REPO
    if not is_one or "--" in repo_id or ".." in repo_id:
        yield f"repo_id: expected <owner>/<name> or <name>, found {quoted(repo_id)}"


def problems_of_revision(revision: str) -> Iterator[str]:
    """Yield what keeps a text from naming a branch, a tag or a commit."""
    for _, name, reason in refusals([revision]):
        yield f"revision {quoted(name)}: {reason}"


def problems_of_directory(what: str, name: str) -> Iterator[str]:
    """Yield what keeps a name from being that of a directory."""
    for _, _, reason in refusals([name]):
        yield f"{what} {quoted(name)}: {reason}"
    if "/" in name:
        yield f"{what} {quoted(name)}: it has a slash"


def problems_of_text(what: str, text: str, limit: int) -> Iterator[str]:
    """Yield what keeps a text from being a path or the name of a column."""
    if not text:
        yield f"the {what} is missing"
    elif len(text) > limit:
        yield f"{what} {quoted(text)}: it is over {limit} characters"
    elif any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in text):
        yield f"{what} {quoted(text)}: it has a control character or half of one"
