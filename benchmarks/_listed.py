"""Directories of many small files, and a promise of them as the tool of its format writes it."""

import base64
import hashlib
import json
import pickle
import shutil
import struct
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

from _copied import GOLDENS

__all__ = ["LISTED", "listed"]

DATA = b"shardproof" * 10
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(DATA).hexdigest()
COMMIT = "0" * 40


def _put(folder: Path, names: Sequence[str], data: bytes = DATA) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(data)


def bagit(to: Path, names: Sequence[str]) -> None:
    _put(to / "data", names)
    (to / "bagit.txt").write_text("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    (to / "bag-info.txt").write_text(f"Payload-Oxum: {len(DATA) * len(names)}.{len(names)}\n")
    lines = (f"{SHA256}  data/{name}\n" for name in names)
    (to / "manifest-sha256.txt").write_text("".join(lines))


def dvc(to: Path, names: Sequence[str]) -> None:
    _put(to / "data", names)
    entries = json.dumps([{"md5": MD5, "relpath": name} for name in names]).encode()
    digest = hashlib.md5(entries, usedforsecurity=False).hexdigest()
    store = to / ".dvc/cache/files/md5" / digest[:2]
    store.mkdir(parents=True)
    (store / f"{digest[2:]}.dir").write_bytes(entries)
    size = len(DATA) * len(names)
    text = f"outs:\n- md5: {digest}.dir\n  size: {size}\n  nfiles: {len(names)}\n"
    (to / "data.dvc").write_text(f"{text}  hash: md5\n  path: data\n")


def croissant(to: Path, names: Sequence[str]) -> None:
    _put(to, names)
    about = json.loads((GOLDENS / "croissant/croissant.json").read_text())
    [first] = about["distribution"]
    about["distribution"] = [
        first
        | {"@id": name, "name": name, "contentUrl": name, "sha256": SHA256}
        | {"contentSize": f"{len(DATA)} B"}
        for name in names
    ]
    (to / "croissant.json").write_text(json.dumps(about))


def model_signing(to: Path, names: Sequence[str]) -> None:
    _put(to, names)
    signed = json.loads((GOLDENS / "model-signing/model.sig").read_text())
    envelope = signed["dsseEnvelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    resources = [{"algorithm": "sha256", "digest": SHA256, "name": name} for name in names]
    root = hashlib.sha256(bytes.fromhex(SHA256) * len(names)).hexdigest()
    statement["subject"][0]["digest"]["sha256"] = root
    statement["predicate"]["resources"] = resources
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    (to / "model.sig").write_text(json.dumps(signed))


def hf_local_dir(to: Path, names: Sequence[str]) -> None:
    _put(to, names)
    notes = to / ".cache/huggingface/download"
    _put(notes, [f"{name}.metadata" for name in names], f"{COMMIT}\n{SHA256}\n4e9\n".encode())


def energon(to: Path, names: Sequence[str]) -> None:
    tar, index = ((GOLDENS / f"energon/train-000000.tar{end}").read_bytes() for end in ("", ".idx"))
    names = [f"{name}.tar" for name in names[: len(names) // 2]]
    _put(to, names, tar)
    _put(to, [f"{name}.idx" for name in names], index)
    n_samples = len(index) // struct.calcsize("Q") - 1
    info = {"energon_version": "7.4.1", "shard_counts": dict.fromkeys(names, n_samples)}
    (to / ".nv-meta").mkdir()
    (to / ".nv-meta/.info.json").write_text(json.dumps(info))


def torch_dcp(to: Path, names: Sequence[str]) -> None:
    """A tensor with a part in each file, by classes that pickle takes for those of torch."""
    names = [f"{name}.distcp" for name in names]
    _put(to, names, b"PK" * 50)
    classes = [_class(name) for name in ("Metadata", "MetadataIndex")]
    stored = _class("_StorageInfo", "filesystem")
    parts = {
        _made(classes[1], fqn="w", offset=None, index=number): _made(
            stored, relative_path=name, offset=0, length=100, transform_descriptors=None
        )
        for number, name in enumerate(names)
    }
    about = _made(classes[0], state_dict_metadata={}, planner_data=None, storage_data=parts)
    named = ("torch", *(each.__module__ for each in (*classes, stored)))
    modules = {name: types.ModuleType(name) for name in named}
    for each in (*classes, stored):
        setattr(modules[each.__module__], each.__name__, each)
    with mock.patch.dict(sys.modules, modules):
        (to / ".metadata").write_bytes(pickle.dumps(about, 4))


def _class(name: str, module: str = "metadata") -> type:
    return type(name, (), {"__module__": f"torch.distributed.checkpoint.{module}"})


def _made(kind: type, **fields: object) -> object:
    made = kind()
    made.__dict__.update(fields)
    return made


LISTED: dict[str, Callable[[Path, Sequence[str]], None]] = {
    "bagit": bagit,
    "dvc": dvc,
    "croissant": croissant,
    "model-signing": model_signing,
    "hf-local-dir": hf_local_dir,
    "energon": energon,
    "torch-dcp": torch_dcp,
}


def listed(form: str, n_files: int, to: Path) -> Path:
    """Write a directory of so many files, all alike, and return its path."""
    shutil.rmtree(to, ignore_errors=True)
    LISTED[form](to, [f"{number:06}.bin" for number in range(n_files)])
    return to
