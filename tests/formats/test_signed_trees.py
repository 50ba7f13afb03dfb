"""Changed models: our verdict is that of the library that signs them, but for what docs name."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof import Level, ShardproofError, validate
from tests.formats.signed_trees import KEY, SIGNED, Recipe, build, pem, recorded
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "validate.md"
OUT = ("outside", "{outside}", "..", "/dev", ".git/hooks")


def accepts(recipe: Recipe, base: Path) -> bool:
    """Our verdict; where something was added and nothing changed, it is that of each level."""
    (base / "signer.pub").write_bytes(pem(KEY))
    build(recipe, base / "model")
    is_added = all(name.startswith("add") for name, *_ in recipe.changes)
    said = {verdict(base, level) for level in (("present", "valid") if is_added else ("valid",))}
    assert len(said) == 1, f"{recipe}: not the same at each level"
    return said.pop()


def verdict(base: Path, level: Level) -> bool:
    try:
        return validate(base / "model", level=level, against=base / "signer.pub").ok
    except (ShardproofError, OSError):
        return False


def leads_out(change: tuple[str, ...]) -> bool:
    name, *arguments = change
    return "link" in name and arguments[-1].removeprefix("../").startswith(OUT)


def states(what: str) -> Callable[[tuple[str, ...]], bool]:
    return lambda change: change[0] == "state" and change[1].endswith(what)


NAMED: dict[str, tuple[bool, Callable[[tuple[str, ...]], bool]]] = {
    "a link out of the directory, or to a folder": (False, leads_out),
    "names that shardproof refuses, or that appear twice": (
        False,
        lambda change: change[0] in {"rename_signed", "sign_another_name", "sign_again"},
    ),
    "a `hash_type` or `shard_size` that does not match the digests": (
        False,
        lambda change: states("hash_type")(change) or states("shard_size")(change),
    ),
    "a signed file in an ignored place": (
        True,
        lambda change: states("ignore_paths")(change) or ".git/signed" in change,
    ),
    "other fields of the bundle": (True, lambda change: change[0] == "put"),
}
"""Rows of the table in the docs: whether we accept then, and what change has it come to that."""


def row_of(recipe: Recipe, ours: bool) -> str | None:
    for row, (we_accept, is_meant) in NAMED.items():
        if ours is we_accept and any(map(is_meant, recipe.changes)):
            return row
    return None


@pytest.mark.slow
def test_verdicts_differ_only_as_the_docs_say(tmp_path: Path) -> None:
    rows: Counter[str | None] = Counter()
    for number, (recipe, theirs) in enumerate(recorded().items()):
        base = tmp_path / str(number)
        base.mkdir()
        if (ours := accepts(recipe, base)) is not theirs:
            row = row_of(recipe, ours)
            assert row is not None, f"{recipe}: model_signing {theirs}, ours {ours}"
            rows[row] += 1
    assert rows.keys() == NAMED.keys()
    assert all(f"| {row}" in PAGE.read_text() for row in NAMED)


@pytest.mark.parametrize("signed", SIGNED)
def test_each_way_of_signing_is_accepted(signed: str, tmp_path: Path) -> None:
    assert recorded()[Recipe(signed)]
    assert accepts(Recipe(signed), tmp_path)


def test_there_are_trees_of_each_kind() -> None:
    assert len(recorded()) > 900
    said = Counter(recorded().values())
    assert min(said.values()) >= 200
