"""DVC: ``*.dvc`` files that state the MD5 digests of what they stand for.

What is tracked may be links into the cache. A tracked folder is a list in that cache, by whose
digest it is called: ``.dvc/cache/files/md5/<2>/<30>.dir``
(https://dvc.org/doc/user-guide/project-structure).
"""

import configparser
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted, told
from shardproof._base.opening import is_there, names_in, real_path
from shardproof._base.yaml import NotYamlError, yaml_field
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._format import Format
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = ["FORMAT"]

_SUFFIX, _FOLDER = ".dvc", ".dir"
_MAX_BYTES = 2 * 2**20
_MAX_CONFIG_BYTES = 2**16


class _DvcEntry(msgspec.Struct):
    """A file of a folder that is tracked."""

    md5: str
    relpath: str


class _DvcOutput(NamedTuple):
    """What one entry of ``outs`` states."""

    path: str
    md5: str | None
    size: int | None
    n_files: int | None
    is_of_bytes: bool


def _recognizes(path: str) -> bool:
    return any(_is_one(name) for name in os.listdir(path))


def _is_one(name: str) -> bool:
    return name.endswith(_SUFFIX) and name != _SUFFIX


def _read_manifest(path: str) -> Manifest:
    names = [name for name in names_in(path) if _is_one(name)]
    if not names:
        raise ManifestNotFoundError("there is no file of DVC, such as data.dvc", path=path)
    cache = _cache_of(path)
    files: list[PromisedFile] = []
    damaged: list[Contradiction] = []
    for name in names:
        for output in _outputs(path, name):
            if (output.md5 or "").endswith(_FOLDER):
                listed = _listed(cache, output)
                files += listed or []
                damaged += [_without_list(output)] if listed is None else []
            else:
                files.append(_promise(output.path, output.md5, output))
    return Manifest(
        root=Path(path),
        path=Path(path, names[0]),
        format=FORMAT.name,
        files=files,
        damaged=damaged,
        stores=[cache] if cache else (),
    )


def _promise(name: str, md5: str | None, output: _DvcOutput) -> PromisedFile:
    # Before version 3 the line ends of texts were changed first: such a digest proves no bytes.
    text = f"md5:{md5}" if md5 and output.is_of_bytes else None
    made = PromisedFile.by_digest(name, text)
    is_file = not (output.md5 or "").endswith(_FOLDER)
    return msgspec.structs.replace(made, size=output.size) if is_file else made


def _outputs(path: str, name: str) -> Iterator[_DvcOutput]:
    where = os.path.join(path, name)
    text = json.read_bytes(path, name, max_bytes=_MAX_BYTES).decode(errors="replace")
    try:
        outputs, folder = (yaml_field(text, field, "it") for field in ("outs", "wdir"))
    except (NotYamlError, ImportError) as error:
        raise ManifestError(told(error), path=where) from None
    if not isinstance(outputs, list) or not all(isinstance(each, dict) for each in outputs):
        raise ManifestError("expected 'outs', a list of what is tracked", path=where)
    for index, output in enumerate(outputs):
        yield _output(output, folder, where, f"outs[{index}]")


def _output(output: dict[str, Any], folder: object, where: str, field: str) -> _DvcOutput:
    md5, path = output.get("md5"), output.get("path")
    size, n_files = output.get("size"), output.get("nfiles")
    if not isinstance(path, str) or not isinstance(md5, str | None):
        problem = f"expected texts for path and md5, found {quoted(path)} and {quoted(md5)}"
        raise ManifestError(problem, path=where, field=field)
    if not all(each is None or type(each) is int for each in (size, n_files)):
        problem = f"expected numbers for size and nfiles, found {quoted(size)}, {quoted(n_files)}"
        raise ManifestError(problem, path=where, field=field)
    joined = posixpath.join(folder, path) if isinstance(folder, str) else path
    path = posixpath.normpath(joined) if joined else joined
    return _DvcOutput(path, md5, size, n_files, output.get("hash") == "md5")


def _cache_of(path: str) -> str | None:
    """Return where the project keeps its cache; None where there is no project above."""
    here = path
    while not is_there(os.path.join(here, ".dvc")):
        if here == os.path.dirname(here):
            return None
        here = os.path.dirname(here)
    config = os.path.join(here, ".dvc")
    folder = _configured(config, "config.local") or _configured(config, "config")
    return real_path(os.path.join(config, folder or "cache"))


def _configured(path: str, name: str) -> str | None:
    try:
        data = json.read_bytes(path, name, max_bytes=_MAX_CONFIG_BYTES)
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.read_string(data.decode(errors="replace"))
    except (ManifestError, configparser.Error):
        return None
    return parser.get("cache", "dir", fallback=None)


def _listed(cache: str | None, output: _DvcOutput) -> list[PromisedFile] | None:
    """Return what a folder is to hold; None where the cache does not have its list."""
    md5 = (output.md5 or "").removesuffix(_FOLDER)
    if cache is None or not md5.isalnum():
        return None
    for folder in ("files/md5/", ""):  # of version 3, and of those before
        try:
            name = f"{folder}{md5[:2]}/{md5[2:]}{_FOLDER}"
            entries = json.read(cache, name, list[_DvcEntry])
        except ManifestNotFoundError:
            continue
        return [_promise(f"{output.path}/{entry.relpath}", entry.md5, output) for entry in entries]
    return None


def _without_list(output: _DvcOutput) -> Contradiction:
    stated = "" if output.n_files is None else f" of {output.n_files} files"
    expected = f"the list{stated} by which this folder is known, in the cache"
    found = "none: run `dvc fetch`"
    return Contradiction(output.path, Mismatch(expected=expected, found=found))


FORMAT = Format(
    name="dvc",
    description="files and folders that DVC tracks",
    manifest_file="*.dvc",
    beside=(".gitignore", ".dvcignore", ".dvc/*"),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="the size of each file that is tracked alone; that the list of each folder is there",
    valid="the MD5 of each file, where DVC 3 wrote it",
    blind_spots="files beyond the list of a folder; digests of DVC 2, which changed the line ends "
    "of texts first; MD5 tells accidents only",
)
