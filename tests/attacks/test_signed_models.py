"""Signed models under attack, by whoever has not the key, and may write all else."""

import base64
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from shardproof import ShardproofError, checks, formats, validate
from shardproof._base import names
from shardproof.checks import _look, check
from shardproof.formats.lists import model_signing
from tests.attacks.tally import Tally
from tests.attacks.targets import Target
from tests.attacks.test_hostile_files import attack
from tests.attacks.test_hostile_manifests import MEMORY, PATIENCE, watch
from tests.attacks.test_swaps import exchange, in_every_order
from tests.formats import signed_trees
from tests.formats.signed_trees import KEY, OTHER_KEY, Recipe

KINDS = ("by its command", "in parts", "by version 0.2")


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return build(tmp_path, request.param)


def build(base: Path, kind: str) -> Path:
    signed_trees.build(Recipe(kind), base / "model")
    (base / "signer.pub").write_bytes(signed_trees.pem(KEY))
    return base / "model"


def is_accepted(model: Path) -> bool:
    try:
        how: dict[str, Any] = {"level": "valid", "against": model.parent / "signer.pub"}
        return validate(model, workers=1, **how).ok
    except (ShardproofError, OSError):
        return False


def change(model: Path, how: Callable[[dict[str, Any]], object]) -> None:
    bundle = json.loads((model / "model.sig").read_bytes())
    how(bundle)
    (model / "model.sig").write_text(json.dumps(bundle))


def spoil(model: Path) -> None:
    (model / "model.bin").write_bytes(b"Weights" * 100)


def forge(model: Path) -> None:
    """List a changed file as it is now, with a digest of all digests that fits."""
    spoil(model)

    def listed_anew(bundle: dict[str, Any]) -> None:
        statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
        how = signed_trees.SIGNED[model_kind(statement)]
        anew = signed_trees.statement_of(model, how)
        if not how.is_old:
            signed_trees.total(anew)
        payload = base64.b64encode(json.dumps(anew).encode()).decode()
        bundle["dsseEnvelope"]["payload"] = payload

    change(model, listed_anew)


def model_kind(statement: dict[str, Any]) -> str:
    if "resources" not in statement["predicate"]:
        return KINDS[2]
    return KINDS[statement["predicate"]["serialization"]["method"] == "shards"]


def put(name: str, make: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda model: change(
        model, lambda bundle: bundle["dsseEnvelope"].update({name: make(bundle["dsseEnvelope"])})
    )


def signatures(*values: bytes) -> Callable[[dict[str, Any]], Any]:
    return lambda _: [{"sig": base64.b64encode(each).decode(), "keyid": ""} for each in values]


def by_another_key(envelope: dict[str, Any]) -> Any:
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    text = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    return signatures(OTHER_KEY.sign(text, ec.ECDSA(hashes.SHA256())))(envelope)


ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
NUMBERS = (0, 1, ORDER - 1, ORDER, ORDER + 1, 2**256)

FORGERIES: dict[str, Callable[[Path], None]] = {
    "the true list": lambda _: None,
    "by another key": put("signatures", by_another_key),
    "no signature": put("signatures", lambda _: []),
    "an empty one": put("signatures", signatures(b"")),
    "another key's, then the true one": put(
        "signatures", lambda envelope: by_another_key(envelope) + envelope["signatures"]
    ),
    "the payload's type has another": put("payloadType", lambda _: "application/json"),
    "a payload behind the true one": put(
        "payload", lambda envelope: f"{envelope['payload'].rstrip('=')}AAAA"
    ),
    **{
        f"the numbers {r}, {s}": put("signatures", signatures(utils.encode_dss_signature(r, s)))
        for r in NUMBERS
        for s in NUMBERS
    },
}


@pytest.mark.attack("a forged signature")
@pytest.mark.parametrize("listed", [spoil, forge])
def test_a_changed_model_is_never_accepted(model, listed, tally) -> None:
    assert is_accepted(model)
    listed(model)
    true = (model / "model.sig").read_bytes()
    for name, forgery in FORGERIES.items():
        forgery(model)
        judge(model, f"{listed.__name__}, {name}", tally)
        (model / "model.sig").write_bytes(true)
    for at in tally.each(range(len(true)), 300):
        flipped = bytearray(true)
        flipped[at] ^= 1 << at % 8
        (model / "model.sig").write_bytes(flipped)
        judge(model, f"{listed.__name__}, byte {at}", tally)


def judge(model: Path, what: str, tally: Tally) -> None:
    tally.count()
    if is_accepted(model):
        tally.harm("lie", what)


@pytest.mark.attack("a forged signature")
def test_nothing_beside_a_changed_model_vouches_for_it(model: Path, tally: Tally) -> None:
    spoil(model)
    for name in ("SHA256SUMS", "B3SUMS", ".SHA256SUMS.journal", "SHA256SUMS/SHA256SUMS"):
        place = model / name
        place.parent.mkdir(exist_ok=True)
        digest = hashlib.sha256((model / "model.bin").read_bytes()).hexdigest()
        place.write_text(f"{digest}  model.bin\n")
        judge(model, name, tally)
        place.unlink() if place.parent == model else shutil.rmtree(place.parent)


@pytest.mark.control("lie")
def test_a_forged_signature_that_nobody_looks_at_is_caught(model, tally, monkeypatch) -> None:
    monkeypatch.setattr(model_signing, "_require_signature", lambda *_, **__: None)
    forge(model)
    judge(model, "nobody looks", tally)


def read_with_key(root: Path) -> Iterator[str]:
    form, key = formats.get("model-signing"), formats.SignerKey("signer.pub", signed_trees.pem(KEY))
    with watch().below(root.parent):
        manifest = formats.read_signed(form, os.fspath(root), key)
        for level in ("present", "complete", "valid"):
            report = check(manifest, level=level, workers=1)
            yield str(report)
            yield from (f"{finding.expected} {finding.found}" for finding in report.findings)


def statement_alone(base: Path, kind: str) -> Path:
    root = build(base, kind)
    bundle = json.loads((root / "model.sig").read_bytes())
    (root / "model.sig").write_bytes(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    return root


def signed(kind: str, statement: bytes) -> bytes:
    return json.dumps(signed_trees.bundle_of(statement, is_old=kind == KINDS[2])).encode()


@pytest.mark.attack("hostile manifests: a signed model")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_signed", [False, True], ids=["the bundle", "what is signed"])
def test_a_hostile_bundle_is_refused_in_our_words(kind, is_signed, tmp_path, tally) -> None:
    assert [*read_with_key(build(tmp_path / "once", kind))]  # what is imported is imported
    make = functools.partial(statement_alone if is_signed else build, kind=kind)
    target = Target(kind, make, ["model.sig"], read_with_key, patience=PATIENCE, memory=MEMORY)
    if is_signed:
        target = target._replace(seal=functools.partial(signed, kind))
    attack(target, tally, 300, tmp_path / "many")


def with_a_changed_file(root: Path, stand_in: Path) -> Path:
    """A file that was changed, or a link to the one that was signed."""
    (root / ".git").mkdir()
    shutil.copy(root / "model.bin", root / ".git/kept")
    spoil(root)
    stand_in.symlink_to(".git/kept")
    return root / "model.bin"


def with_a_changed_folder(root: Path, stand_in: Path) -> Path:
    """As above, by the folder that it is in."""
    shutil.copytree(root / "sub", root / ".git/kept")
    (root / "sub/deep/x.bin").write_bytes(b"X")
    stand_in.symlink_to(".git/kept")
    return root / "sub"


def with_code(root: Path, stand_in: Path, below: str = ".") -> Path:
    """A folder with what was not signed, or a link to one with nothing."""
    (root / "code" / below).mkdir(parents=True)
    (root / "code" / below / "run.py").write_text("evil")
    (root.parent / "other" / below).mkdir(parents=True)
    stand_in.symlink_to("../other")
    return root / "code"


def with_code_in_a_folder(root: Path, stand_in: Path) -> Path:
    return with_code(root, stand_in, "more")


def with_another_list(root: Path, stand_in: Path) -> Path:
    shutil.copy(root / "model.sig", stand_in)
    forge(root)
    return root / "model.sig"


SWAPS = (
    *(with_a_changed_file, with_a_changed_folder, with_code, with_code_in_a_folder),
    with_another_list,
)


@pytest.fixture(params=SWAPS, ids=lambda swap: swap.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return request.param(of_few_files(tmp_path), tmp_path / "stand-in")


def of_few_files(base: Path) -> Path:
    root = build(base, KINDS[0])
    for name in ("config.json", "sub/weights.bin", "sub/deep/same.bin", ".hidden", "empty"):
        (root / name).unlink()
    statement = signed_trees.statement_of(root, signed_trees.SIGNED[KINDS[0]])
    signed_trees.total(statement)
    (root / "model.sig").write_bytes(signed(KINDS[0], json.dumps(statement).encode()))
    assert is_accepted(root)
    return root


def look(root: Path, tally: Tally) -> None:
    tally.count()
    if is_accepted(root):
        tally.harm("lie", "accepted")


@pytest.mark.attack("a signed model swapped while it is looked at")
def test_what_was_never_signed_is_not_accepted(place, tmp_path, tally, monkeypatch) -> None:
    subject = functools.partial(look, tmp_path / "model", tally)
    subject()
    exchange(place, tmp_path, back=False)
    subject()
    exchange(place, tmp_path, back=True)
    in_every_order(subject, place, tmp_path, tally, monkeypatch)


def old_walk(directory: Path, *, hidden: bool) -> list[str]:
    """As it was: each folder is listed by its path."""
    assert hidden
    found = []
    for here, folders, others in os.walk(directory):
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        found += [os.path.relpath(os.path.join(here, name), directory) for name in others + links]
    return found


def old_open(name: str, *, root: str, dir_fd: int, links: bool) -> int:
    """As it was: through links, if they stay inside."""
    return names.open_inside(name, root=root, dir_fd=dir_fd)


@pytest.mark.control("lie")
@pytest.mark.parametrize(
    ("swap", "room", "name", "old"),
    [
        (with_a_changed_file, _look, "open_inside", old_open),
        (with_a_changed_folder, _look, "open_inside", old_open),
        (with_code_in_a_folder, checks, "files_below", old_walk),
    ],
    ids=["a file", "a folder", "a walk"],
)
def test_a_look_as_it_was_is_caught_in_some_order(
    swap, room, name, old, tmp_path, tally, monkeypatch
) -> None:
    place = swap(of_few_files(tmp_path), tmp_path / "stand-in")
    monkeypatch.setattr(room, name, old)
    subject = functools.partial(look, tmp_path / "model", tally)
    in_every_order(subject, place, tmp_path, tally, monkeypatch)
