"""DVC: ``*.dvc`` files, and ``dvc.lock`` of a pipeline, with MD5 digests of what they stand for.

Paths in ``dvc.lock`` are relative to where a stage runs, which ``dvc.yaml`` says. What is tracked
may be links into the cache. A tracked folder is a list in that cache, by whose digest it is called:
``.dvc/cache/files/md5/<2>/<30>.dir``; or, of a cloud that keeps versions, in the file itself
(https://dvc.org/doc/user-guide/project-structure).
"""

import configparser
import hashlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted, told
from shardproof._base.names import refusals
from shardproof._base.opening import (
    files_below,
    is_directory,
    is_of_a_desktop,
    listed_in,
    names_in,
    real_path,
)
from shardproof._base.yaml import NotYamlError, YamlReader
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest, Mismatch

_SUFFIX, _LIST = ".dvc", ".dir"
_LOCK, _PIPELINE = "dvc.lock", "dvc.yaml"
_OWED = {_LOCK: "schema|stages", _PIPELINE: "stages|vars|params|metrics|plots|artifacts|datasets"}
"""Fields of which a file has one at least, or it is torn; others have ``outs``, or a command."""
_STORE = "files/md5"
_MAX_BYTES = 2 * 2**20
_MAX_CONFIG_BYTES = 2**16
_LIST_NAME = re.compile(r"([0-9a-f]{2})([0-9a-f]{30})\.dir")
_OLD_NAME = re.compile(r"[0-9a-f]{32}")

_T = TypeVar("_T")


class _DvcEntry(msgspec.Struct):
    """A file of a folder that is tracked."""

    relpath: str
    md5: str | None = None
    size: Count | None = None


class _DvcOutput(msgspec.Struct):
    """One entry of ``outs``: a file, or a folder."""

    path: str
    md5: str | None = None
    size: Count | None = None
    nfiles: Count | None = None
    hash: str | None = None
    files: list[_DvcEntry] | None = None
    cache: bool = True

    @property
    def is_folder(self) -> bool:
        return self.files is not None or (self.md5 or "").endswith(_LIST)

    @property
    def is_of_bytes(self) -> bool:
        """Whether its digests are of bytes: before version 3 line ends of texts were changed."""
        return self.hash == "md5"


class _LockedStage(msgspec.Struct):
    """What a stage had written when it ran last."""

    outs: list[_DvcOutput] = []


class _DvcStage(msgspec.Struct):
    """A stage; of those that are made of a list, what each does."""

    wdir: str = ""
    outs: list[object] = []
    do: "_DvcStage | None" = None
    foreach: object = None
    matrix: object = None


def recognizes(path: str) -> bool:
    return any(_is_one(name) for name in listed_in(path))


def _is_one(name: str) -> bool:
    is_file = name.endswith(_SUFFIX) and name != _SUFFIX and not is_of_a_desktop(name)
    return name == _LOCK or is_file


def read_manifest(path: str) -> Manifest:
    names = [name for name in names_in(path) if _is_one(name)]
    if not names:
        raise ManifestNotFoundError("there is no file of DVC, such as data.dvc", path=path)
    cache = _cache_of(path)
    files, old = list[ExpectedFile](), set[str]()
    stages, locked = dict[str, _DvcStage](), dict[str, _LockedStage]()
    if _LOCK in names:
        locked = _field(path, _LOCK, "stages", dict[str, _LockedStage])
        if _PIPELINE in names_in(path):
            stages = _field(path, _PIPELINE, "stages", dict[str, _DvcStage])
    damaged, n_folders = list(_unfinished(stages, locked)), 0
    placed = list(_of_stages(stages, locked))
    for name in names:
        if name != _LOCK:
            folder = _field(path, name, "wdir", str)
            placed += [(folder, each) for each in _field(path, name, "outs", list[_DvcOutput])]
    for output in _outputs(placed):
        if not output.is_folder:
            files.append(_promise(output.path, output.md5, output.size, output))
            continue
        n_folders += 1
        entries = _listed(path, cache, output)
        if not entries and not is_directory(f"{path}/{output.path}"):
            entries = Mismatch("an empty folder", "none: run `dvc checkout`")
        if isinstance(entries, Mismatch):
            damaged.append(Contradiction(output.path, *entries))
            continue
        folder = "" if output.path == "." else f"{output.path}/"
        files += (_promise(folder + each.relpath, each.md5, each.size, output) for each in entries)
        if not output.is_of_bytes:
            old |= {md5[:2] for each in entries if _OLD_NAME.fullmatch(md5 := each.md5 or "")}
    if not (files or damaged or n_folders):
        raise ManifestError("it tracks no file in this directory", path=Path(path, names[0]))
    # The folders of a cache to which files may be links; the cache may be called ``/``.
    stores = [real_path(os.path.join(cache, each)) for each in (_STORE, *sorted(old)) if cache]
    return Manifest.at(path, names[0], "dvc", files, damaged=damaged, stores=stores)


def _promise(name: str, md5: str | None, size: int | None, output: _DvcOutput) -> ExpectedFile:
    text = f"md5:{md5}" if md5 else None
    if size is None:
        size = ExpectedFile.by_digest(name, text).size
    return ExpectedFile(name=name, size=size, digest=text if output.is_of_bytes else None)


def _outputs(placed: Iterable[tuple[str, _DvcOutput]]) -> Iterator[_DvcOutput]:
    """Yield what lies here, by its path here, and was brought here: it has a digest."""
    for folder, output in placed:
        place = posixpath.join(folder, output.path)
        if "://" not in output.path and not place.startswith("/") and (output.md5 or output.files):
            output.path = posixpath.normpath(place) if place else place
            yield output


def _unfinished(
    stages: Mapping[str, _DvcStage], locked: Mapping[str, _LockedStage]
) -> Iterator[Contradiction]:
    """Yield stages of which fewer outputs are locked than they have; some are made of templates."""
    for name, stage in stages.items():
        items = stage.foreach if isinstance(stage.foreach, list | dict) else ()
        made = [f"{name}@{item}" for item in items if isinstance(item, str) and "${" not in item]
        if stage.foreach or stage.matrix:
            made = made or [each for each in locked if each.startswith(f"{name}@")]
        n_outs = len((stage.do or stage).outs)
        for each in made or [name]:
            outputs = locked.get(each, _LockedStage()).outs
            n_locked = sum("://" in out.path or bool(out.md5 or out.files) for out in outputs)
            if n_locked < n_outs:
                expected = f"{n_outs} outputs of the stage {quoted(each)}"
                found = f"{n_locked}: it has not run to its end, run `dvc repro`"
                yield Contradiction(_LOCK, expected, found)


def _of_stages(
    stages: Mapping[str, _DvcStage], locked: Mapping[str, _LockedStage]
) -> Iterator[tuple[str, _DvcOutput]]:
    """Yield what stages wrote, with where they ran, unless only a template of that is known."""
    for name, had in locked.items():
        of_many, _, item = name.rpartition("@")
        stage = stages.get(name) or stages.get(of_many)
        folder = (stage.do or stage).wdir.replace("${item}", item) if stage else ""
        for output in had.outs if (stage or not stages) and "${" not in folder else ():
            if not posixpath.normpath(posixpath.join(folder, output.path)).startswith("../"):
                output.cache = False  # which only the pipeline tells
                yield folder, output


def _field(path: str, name: str, field: str, kind: type[_T]) -> _T:
    """Return a field of a file of YAML; where it is not there, what is returned is empty."""
    where, owed = os.path.join(path, name), _OWED.get(name, "outs|cmd")
    text = json.read_bytes(path, name, max_bytes=_MAX_BYTES).decode(errors="replace")
    if re.search(rf"""(?m)^[{{ \t"']*(?:{owed})["']?[ \t]*:""", text) is None:
        problem = f"expected a field of {owed.replace('|', ', ')}, found {quoted(text)}"
        raise ManifestError(f"{problem}: it is torn, restore it, as from git", path=where)
    if field not in text:  # to read it takes long
        return kind()
    try:
        value = YamlReader("it", as_written=True, aliases=True).field(text, field, kind())
        return msgspec.convert(value, kind, strict=False)
    except (NotYamlError, ImportError) as error:
        raise ManifestError(told(error), path=where) from None
    except msgspec.ValidationError as error:
        raise ManifestError(told(error), path=where, field=field) from None


def _cache_of(path: str) -> str | None:
    """Return where the project keeps its cache; None where there is no project above."""
    above = (os.path.join(here, ".dvc") for here in (path, *map(str, Path(path).parents)))
    project = next(filter(is_directory, above), None)
    if project is None:
        return None
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    user = os.environ.get("DVC_GLOBAL_CONFIG_DIR") or os.path.join(home, "dvc")
    for folder, name in ((project, "config.local"), (project, "config"), (user, "config")):
        if (stated := _configured(real_path(folder), name)) is not None:
            return real_path(stated)
    return real_path(os.path.join(project, "cache"))


def _configured(folder: str, name: str) -> str | None:
    """Return the directory of the cache that a configuration states; None if it states none."""
    try:
        data = json.read_bytes(folder, name, max_bytes=_MAX_CONFIG_BYTES)
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.read_string(data.decode(errors="replace"))
    except (ManifestError, configparser.Error):
        return None
    stated = parser.get("cache", "dir", fallback="").strip("\"'").replace("\0", "")
    return os.path.join(folder, os.path.expanduser(stated)) if stated else None


def _listed(path: str, cache: str | None, output: _DvcOutput) -> Sequence[_DvcEntry] | Mismatch:
    """Return the list of a folder, or what is wrong with it."""
    if output.files is not None:
        return output.files
    found = _LIST_NAME.fullmatch(output.md5 or "")
    stated = "" if output.nfiles is None else f" of {output.nfiles} files"
    expected = f"the list{stated} by which this folder is known, in the cache"
    for store in (f"{_STORE}/", "") if cache and found else ():  # of version 3, and before
        name = f"{store}{found[1]}/{found[2]}{_LIST}" if found else ""
        try:
            data = json.read_bytes(cache or "", name, max_bytes=json.MAX_BYTES)
        except ManifestNotFoundError:
            continue
        if f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}{_LIST}" != output.md5:
            return Mismatch(expected, "another text: remove it, run `dvc fetch`")
        return json.decode(data, list[_DvcEntry], path=os.path.join(cache or "", name))
    folder = os.path.join(path, output.path)
    is_inside = not refusals([output.path]) and real_path(folder) == folder and is_directory(folder)
    names = list[str]()
    for hidden in (True, False) if is_inside and not output.cache else ():
        names = files_below(folder, hidden=hidden)  # a desktop may have left some since
        if names and len(names) == output.nfiles:  # as with `cache: false`: nothing else is known
            return [_DvcEntry(name) for name in names]
    here = f"; {len(names)} files are there" if names else ""
    return Mismatch(expected, f"none: run `dvc fetch`{here}")
