"""What stands in the place of a shard: a pointer to it, a page, or the error of a server.

Git LFS leaves a pointer where `git clone` ran without it, or where a checkout was copied (its
specification: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md); git-annex a file with the
key (https://git-annex.branchable.com/internals/pointer_file/); a download without a look at the
status leaves what the server had to say.
"""

import os
import re

from shardproof._base.messages import quoted
from shardproof._base.opening import Read

__all__ = ["impostor", "is_text"]

_HEAD_BYTES = 1024  # both kinds of pointers are shorter
_LFS = re.compile(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v1\n"
    rb"(?:ext-[^\n]*\n)*oid sha256:[0-9a-f]{64}\nsize (\d{1,19})\n?"
)
_ANNEX = re.compile(rb"/annex/objects/([!-~]{1,400})\s*")
_ANNEX_SIZE = re.compile(rb"-s(\d{1,19})-")
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
_XML_ERROR = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<Error>\s*<Code>([^<]{1,80})<")
_JSON_ERROR = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:error|errors|message|detail)"\s*:\s*([\[{"].{0,80})', re.DOTALL
)
_TEXT_NAME = re.compile(r"\.(?:csv|html?|jsonl?|md|svg|txt|xml|ya?ml)\Z", re.IGNORECASE)


def impostor(read: Read, size: int, *, among_texts: bool = False) -> str | None:
    """Return what stands in the place of a file, and what to do; among texts only pointers tell."""
    if isinstance(read, int):  # not by pread(2), which pyfakefs does not fake
        os.lseek(read, 0, os.SEEK_SET)
        head = os.read(read, _HEAD_BYTES)
    else:
        head = read(_HEAD_BYTES)
    return _pointer(head, size) or (None if among_texts else _answer(head))


def is_text(name: str) -> bool:
    """Whether a page, or JSON with an error, may well be what a file of this name holds."""
    return _TEXT_NAME.search(name) is not None


def _pointer(text: bytes, size: int) -> str | None:
    if size > _HEAD_BYTES:
        return None
    if (found := _LFS.fullmatch(text)) is not None:
        return f"Git LFS pointer of {_spaced(found[1])} bytes: run `git lfs pull`"
    if (found := _ANNEX.fullmatch(text)) is not None:
        n_bytes = _ANNEX_SIZE.search(found[1])
        of_size = f" of {_spaced(n_bytes[1])} bytes" if n_bytes else ""
        return f"git-annex pointer{of_size}: run `git annex get`"
    return None


def _answer(head: bytes) -> str | None:
    if _HTML.match(head):
        return "HTML page: a download got it in place of the file; fetch it again, with a token?"
    for error, whose in ((_XML_ERROR, "store"), (_JSON_ERROR, "server")):
        if (found := error.match(head)) is not None:
            said = quoted(found[1].decode(errors="replace"), 60)
            return f"error of a {whose}, {said}: fetch it again"
    return None


def _spaced(digits: bytes) -> str:
    return f"{int(digits):,}".replace(",", " ")
