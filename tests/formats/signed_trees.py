"""Signed models that somebody changed, and what OpenSSF's model_signing says of each.

::

    python -m tests.formats.signed_trees           # compare with what is recorded
    python -m tests.formats.signed_trees --write   # record anew

Run it with an interpreter that has model_signing; ``tox -e goldens-signing`` does. A tree is a
recipe: how it was signed, and up to three changes; another one is a line more in the record.
"""

import argparse
import base64
import contextlib
import functools
import hashlib
import json
import operator
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import blake3
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

RECORD = Path(__file__).with_name("data") / "signed_trees.json"
PART = 256
KEY, OTHER_KEY = (ec.derive_private_key(secret, ec.SECP256R1()) for secret in (18, 19))

FILES = {
    "model.bin": b"weights" * 100,
    "config.json": b"{}",
    "sub/weights.bin": b"w" * PART,
    "sub/deep/x.bin": b"x",
    "sub/deep/same.bin": b"weights" * 100,
    ".hidden": b"signed too",
    "empty": b"",
}
GIT = [".git", ".gitattributes", ".github", ".gitignore"]


class Recipe(NamedTuple):
    signed: str
    changes: tuple[tuple[str, ...], ...] = ()


class Signed(NamedTuple):
    method: str = "files"
    algorithm: str = "sha256"
    ignored: tuple[str, ...] | None = ("model.sig", *GIT)
    links: bool = False
    is_old: bool = False
    is_guessed: bool = False


SIGNED = {
    "by its command": Signed(is_guessed=True),
    "by blake2b": Signed(algorithm="blake2b"),
    "by blake3": Signed(algorithm="blake3", is_guessed=True),
    "in parts": Signed(method="shards"),
    "in parts by blake2b": Signed(method="shards", algorithm="blake2b"),
    "with links": Signed(links=True),
    "in parts with links": Signed(method="shards", links=True),
    "without notes": Signed(ignored=("model.sig", "notes", *GIT), is_guessed=True),
    "with what git keeps": Signed(ignored=("model.sig",)),
    "by version 1.0": Signed(ignored=None),
    "by version 0.2": Signed(ignored=None, is_old=True),
}


def digest_of(data: bytes, algorithm: str) -> str:
    make = blake3.blake3 if algorithm == "blake3" else functools.partial(hashlib.new, algorithm)
    return make(data).hexdigest()


def resources_of(root: Path, how: Signed) -> list[dict[str, str]]:
    listed = []
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.name == "model.sig":
            continue
        name, data = path.relative_to(root).as_posix(), path.read_bytes()
        if how.method == "files":
            listed.append((name, data, how.algorithm))
        for at in range(0, len(data), PART) if how.method == "shards" else ():
            part = data[at : at + PART]
            listed.append(
                (f"{name}:{at}:{at + len(part)}", part, f"{how.algorithm}-sharded-{PART}")
            )
    return [
        {"name": name, "digest": digest_of(data, how.algorithm), "algorithm": algorithm}
        for name, data, algorithm in listed
        if how.ignored is None or not name.startswith("notes/")
    ]


def statement_of(root: Path, how: Signed) -> dict[str, Any]:
    resources = resources_of(root, how)
    statement: dict[str, Any] = {"_type": "https://in-toto.io/Statement/v1"}
    if how.is_old:
        statement["predicateType"] = "https://model_signing/Digests/v0.1"
        statement["predicate"] = {"unused": "Unused, just passed due to API requirements"}
        statement["subject"] = [
            {"name": each["name"], "digest": {"sha256": each["digest"]}} for each in resources
        ]
        return statement
    said: dict[str, Any] = {"method": how.method, "hash_type": how.algorithm}
    said |= {"allow_symlinks": how.links}
    if how.method == "shards":
        said["shard_size"] = float(PART)
    if how.ignored is not None:
        said["ignore_paths"] = list(how.ignored)
    statement["predicateType"] = "https://model_signing/signature/v1.0"
    statement["predicate"] = {"serialization": said, "resources": resources}
    statement["subject"] = [{"name": "model", "digest": {}}]
    return statement


def total(statement: dict[str, Any]) -> None:
    digests = [bytes.fromhex(each["digest"]) for each in statement["predicate"]["resources"]]
    together = hashlib.sha256(b"".join(digests)).hexdigest()
    statement["subject"][0]["digest"]["sha256"] = together


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


class Draft(NamedTuple):
    root: Path
    statement: dict[str, Any]
    after: list[Callable[[dict[str, Any]], object]]

    @property
    def outside(self) -> Path:
        return self.root.parent / "outside"

    @property
    def listed(self) -> list[dict[str, Any]]:
        """What is signed: resources, or subjects of an old statement."""
        return self.statement["predicate"].get("resources", self.statement["subject"])


def encoded(payload: bytes) -> bytes:
    return b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(payload), payload)


def encoded_by_0_2(payload: bytes) -> bytes:
    return f"DSSEV1 28 application/vnd.in-toto+json {len(payload)} {payload!r}".encode()


def bundle_of(payload: bytes, *, is_old: bool) -> dict[str, Any]:
    text = encoded_by_0_2(payload) if is_old else encoded(payload)
    signature = base64.b64encode(KEY.sign(text, ec.ECDSA(hashes.SHA256()))).decode()
    hint = hashlib.sha256(pem(KEY)).hexdigest()
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": signature, "keyid": ""}],
        },
    }


def build(recipe: Recipe, root: Path) -> None:
    how = SIGNED[recipe.signed]
    for name, data in FILES.items():
        write(root / name, data)
    (root.parent / "outside/folder").mkdir(parents=True)
    write(root.parent / "outside/run.py", b"evil")
    write(root.parent / "outside/model.bin", FILES["model.bin"])
    write(root.parent / "outside/folder/x.bin", b"x")
    if how.links:
        (root / "alias").symlink_to("model.bin")
        (root / "more").symlink_to("sub")
    if "git" in recipe.signed:
        write(root / ".gitattributes", b"*.bin -text")
    draft = Draft(root, statement_of(root, how), [])
    if not how.is_old:
        total(draft.statement)
    for name, *arguments in recipe.changes:
        CHANGES[name](draft, *arguments)
    payload = json.dumps(draft.statement).encode()
    bundle = bundle_of(payload, is_old=how.is_old)
    for change in draft.after:
        change(bundle)
    if not (root / "model.sig").is_symlink():
        (root / "model.sig").write_text(json.dumps(bundle))


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# What may be done to the tree; what is a line long is in `CHANGES`.


def place_of(draft: Draft, name: str) -> Path:
    (draft.root / name).parent.mkdir(parents=True, exist_ok=True)
    return draft.root / name


def add_link(draft: Draft, name: str, target: str) -> None:
    if target.startswith(".evil"):
        write(draft.root / ".evil/run.py", b"evil")
    if target.startswith(".git/"):
        write(draft.root / ".git/hooks/run", b"evil")
    place_of(draft, name).symlink_to(target.format(outside=draft.outside))


def add_socket(draft: Draft, name: str) -> None:
    with contextlib.chdir(place_of(draft, name).parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(Path(name).name)


def hard_link(draft: Draft, name: str) -> None:
    (draft.root / name).unlink()
    (draft.root / name).hardlink_to(draft.outside / "model.bin")


def by_link(draft: Draft, name: str, target: str) -> None:
    place = draft.root / name
    where = {"outside": draft.outside / "kept", "git": draft.root / ".git/kept"}.get(target)
    if where is None:
        place.unlink()
        place.symlink_to(os.path.relpath(draft.root / target, place.parent))
        return
    where.parent.mkdir(exist_ok=True)
    place.rename(where)
    place.symlink_to(os.path.relpath(where, place.parent))


def sign_by_link(draft: Draft) -> None:
    """Have the signature lie where git keeps its files, and a link to it."""
    (draft.root / ".git").mkdir(exist_ok=True)
    (draft.root / "model.sig").symlink_to(".git/model.sig")
    draft.after.append(
        lambda bundle: (draft.root / ".git/model.sig").write_text(json.dumps(bundle))
    )


def rename(draft: Draft, name: str, other: str) -> None:
    (draft.root / name).rename(place_of(draft, other))


def exchange(draft: Draft, name: str, other: str) -> None:
    rename(draft, name, "between")
    rename(draft, other, name)
    rename(draft, "between", other)


def flip(draft: Draft, name: str, at: str) -> None:
    data = bytearray((draft.root / name).read_bytes())
    data[int(at) % len(data)] ^= 1
    (draft.root / name).write_bytes(data)


def to_folder(draft: Draft, name: str) -> None:
    (draft.root / name).unlink()
    write(draft.root / name / "evil.py", b"evil")


# What the owner of the key may sign.


def state(draft: Draft, path: str, value: str) -> None:
    *keys, last = path.split("/")
    place: Any = draft.statement
    for key in keys:
        place = place[int(key) if key.isdigit() else key]
    last = int(last) if last.isdigit() else last  # type: ignore[assignment]
    if value == "":
        del place[last]
    else:
        place[last] = json.loads(value)


def rename_signed(draft: Draft, before: str, after: str) -> None:
    for each in draft.listed:
        each["name"] = each["name"].replace("model.bin", f"{before}model.bin{after}", 1)


def sign_another_name(draft: Draft, name: str) -> None:
    write(draft.root / name, b"signed")
    span, kind = (":0:6", f"-sharded-{PART}") if ":" in draft.listed[0]["name"] else ("", "")
    algorithm = draft.listed[0].get("algorithm", "sha256").partition("-")[0]
    digest = digest_of(b"signed", algorithm)
    draft.listed.append(
        {"name": name + span, "digest": digest, "algorithm": algorithm + kind}
        if "algorithm" in draft.listed[0]
        else {"name": name, "digest": {"sha256": digest}}
    )


def in_capitals(draft: Draft) -> None:
    for each in draft.listed:
        if isinstance(each["digest"], str):
            each["digest"] = each["digest"].upper()


def to_other_parts(draft: Draft) -> None:
    """Join the first two parts of a file."""
    [one, two, *_] = [each for each in draft.listed if each["name"].startswith("model.bin:")]
    data = FILES["model.bin"][: 2 * PART]
    one["name"], one["digest"] = f"model.bin:0:{2 * PART}", digest_of(data, "sha256")
    draft.listed.remove(two)


def sum_up(draft: Draft) -> None:
    if "resources" in draft.statement["predicate"]:
        with contextlib.suppress(LookupError, ValueError):
            total(draft.statement)


# What may be done to the bundle by anybody.


def put(draft: Draft, path: str, value: str) -> None:
    draft.after.append(lambda bundle: state(Draft(draft.root, bundle, []), path, value))


def spoil(place: dict[str, str], name: str, last: Callable[[bytes], bytes]) -> None:
    data = base64.b64decode(place[name])
    place[name] = base64.b64encode(data[:-1] + last(data[-1:])).decode()


def spoil_signature(draft: Draft) -> None:
    other = operator.methodcaller("translate", bytes(byte ^ 1 for byte in range(256)))
    draft.after.append(lambda each: spoil(each["dsseEnvelope"]["signatures"][0], "sig", other))


def spoil_payload(draft: Draft) -> None:
    draft.after.append(lambda each: spoil(each["dsseEnvelope"], "payload", lambda end: end + b" "))


def add_signature(draft: Draft, where: str) -> None:
    def change(bundle: dict[str, Any]) -> None:
        other = {"sig": base64.b64encode(OTHER_KEY.sign(b"", ec.ECDSA(hashes.SHA256()))).decode()}
        signatures = bundle["dsseEnvelope"]["signatures"]
        signatures.insert(0 if where == "before" else 1, other | {"keyid": ""})

    draft.after.append(change)


CHANGES: dict[str, Callable[..., object]] = {
    **{
        function.__name__: function
        for function in (
            *(add_link, add_socket, by_link, sign_by_link, rename, exchange, flip),
            *(to_folder, state, rename_signed, sign_another_name, in_capitals, to_other_parts),
            *(sum_up, put, spoil_signature, spoil_payload, add_signature, hard_link),
        )
    },
    "add": lambda draft, name, text="evil": write(draft.root / name, text.encode()),
    "add_fifo": lambda draft, name: os.mkfifo(place_of(draft, name)),
    "add_folder": lambda draft, name: (draft.root / name).mkdir(parents=True, exist_ok=True),
    "folder_by_link": by_link,
    "remove": lambda draft, name: (draft.root / name).unlink(),
    "remove_folder": lambda draft, name: shutil.rmtree(draft.root / name),
    "cut": lambda draft, name, size: os.truncate(draft.root / name, int(size)),
    "mode": lambda draft, name, bits: (draft.root / name).chmod(int(bits, 8)),
    "first": lambda draft, field, value: draft.listed[0].update({field: value}),
    "sign_again": lambda draft: draft.listed.append(draft.listed[0]),
    "forget": lambda draft, at: draft.listed.pop(int(at)),
    "reverse": lambda draft: draft.listed.reverse(),
}


def library_accepts(recipe: Recipe) -> bool:
    """Whether model_signing takes a tree for the signed one, told how it was signed if need be."""
    from model_signing import hashing, verifying

    how = SIGNED[recipe.signed]
    with tempfile.TemporaryDirectory(prefix="tree-") as place:
        root, key = Path(place, "model"), Path(place, "signer.pub")
        key.write_bytes(pem(KEY))
        build(recipe, root)
        config = verifying.Config().use_elliptic_key_verifier(public_key=key)
        if not how.is_guessed:
            told = hashing.Config().set_allow_symlinks(how.links)
            algorithm: Any = {"blake2b": "blake2"}.get(how.algorithm, how.algorithm)
            if how.method == "shards":
                told.use_shard_serialization(hashing_algorithm=algorithm, shard_size=PART)
            else:
                told.use_file_serialization(hashing_algorithm=algorithm)
            told.set_ignored_paths(paths=["model.sig"], ignore_git_paths=how.ignored is None)
            config.set_hashing_config(told)
        try:
            with contextlib.redirect_stdout(None):
                config.verify(root, root / "model.sig")
        except Exception:  # whatever it says: it did not accept
            return False
    return True


@functools.cache
def recorded() -> dict[Recipe, bool]:
    return {
        Recipe(signed, tuple(map(tuple, changes))): accepts
        for signed, changes, accepts in json.loads(RECORD.read_text())["trees"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    from importlib.metadata import version

    name = f"model-signing {version('model-signing')}"
    found = {recipe: library_accepts(recipe) for recipe in recorded()}
    if parser.parse_args().write:
        lines = [json.dumps([*recipe, accepts]) for recipe, accepts in found.items()]
        text = ",\n    ".join(lines)
        RECORD.write_text(f'{{\n  "by": "{name}",\n  "trees": [\n    {text}\n  ]\n}}\n')
    others = [recipe for recipe, accepts in recorded().items() if found.get(recipe) != accepts]
    counts = f"{len(found)} trees, {sum(found.values())} accepted"
    sys.stdout.write(f"{name}: {counts}, {len(others)} not as recorded\n")
    sys.exit(bool(others))


if __name__ == "__main__":
    main()
