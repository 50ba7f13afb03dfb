"""What lies in a directory that is to be sealed, and what is stated of it already."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardproof import formats
from shardproof._base import digest, digest_lists
from shardproof._base.opening import is_never_a_shard, tree
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.manifest import Manifest, PromisedFile

Stated = Mapping[str, Sequence[str]]
"""The digests that lists state of files."""


def contents_of(root: str, wrong: list[ManifestError]) -> tuple[Mapping[str, str | None], Stated]:
    """Return what lies in a directory and in those below it, and what lists there state.

    Of each file it is told why it is left out where no format says what is to be sealed; None if it
    is not. No folder that never holds shards is entered, such as a hidden one.
    """
    files: dict[str, str | None] = {}
    stated: dict[str, list[str]] = {}
    for here, folders, names in tree(root):
        hidden = list(filter(is_never_a_shard, folders))
        folders[:] = [name for name in folders if name not in hidden]
        lists = digest_lists.lists_in(here)
        below = os.path.relpath(here, root)
        for name in [*(f"{name}/" for name in hidden), *names]:
            files[_joined(below, name)] = _why_left_out(name, lists)
        for name, texts in digest_lists.stated_by(here, lists, wrong).items():
            stated.setdefault(_joined(below, name), []).extend(map(str, map(digest.parse, texts)))
    return files, stated


def _joined(below: str, name: str) -> str:
    return name if below == "." else f"{below}/{name}"


def _why_left_out(name: str, lists: Sequence[str]) -> str | None:
    if is_never_a_shard(name.rstrip("/")):
        return "hidden" if name.startswith(".") else "never expected"
    return "a list of digests" if name in lists else None


def manifest_of(
    root: str, form: formats.Format | None, files: Mapping[str, str | None], stated: Stated
) -> Manifest:
    """Return what is to be sealed, with all digests that are stated of it."""
    with contextlib.suppress(ManifestNotFoundError):
        form = form or formats.detect(root)
    if form is None:
        manifest = Manifest(root=Path(root), path=Path(root), format="files", files=())
    else:
        manifest = formats.read_manifest(form, root)
    promised = {file.name: file for file in manifest.files}
    if form is None or form.name == formats.LISTS:
        any_files = [name for name, reason in files.items() if reason is None]
        promised = {name: PromisedFile(name=name) for name in any_files} | promised
    if not promised:
        raise ManifestNotFoundError("there is nothing to seal: no file in it", path=root)
    all_stated = [formats.with_digests(f, stated.get(name, ())) for name, f in promised.items()]
    return dataclasses.replace(manifest, files=all_stated)
