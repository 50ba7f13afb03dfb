"""What becomes of shards, and what the oracle says of it."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import Level, validate
from shardproof.checks import check
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.testing import (
    Layout,
    ShardState,
    apply_states,
    expected_findings,
    expected_unproven,
    shards_dir,
    write_layout,
)
from shardproof.testing.samples.receipts import expected_pending
from shardproof.testing.strategies import layouts
from tests.helpers.drawing import examples

LEVELS: tuple[Level, ...] = ("present", "complete", "valid")


def is_so(path: Path, state: ShardState, whole: bytes) -> bool:
    """Whether a shard is in a state, as the operating system sees it."""
    mode = os.lstat(path).st_mode if os.path.lexists(path) else 0
    temporary = path.with_name(path.name + ".tmp").exists()
    if not mode:
        return state == ("unfinished" if temporary else "missing")
    if stat.S_ISLNK(mode):
        if os.readlink(path) == path.name:
            return state == "loop"
        if not path.exists():
            return state == "dangling"
        inside = path.resolve().is_relative_to(path.parent.resolve())
        return state == ("linked" if inside else "outside") and path.read_bytes() == whole
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
        return state == kinds[stat.S_IFMT(mode)]
    if not stat.S_IMODE(mode):
        return state == "unreadable"
    found = path.read_bytes()
    bits = sum((a ^ b).bit_count() for a, b in zip(found, whole, strict=False))
    return {
        "ok": found == whole and not temporary,
        "leftover": found == whole and temporary,
        "empty": not found,
        "extended": found[:-1] == whole,
        "truncated": 0 < len(found) < len(whole) and whole.startswith(found),
        "sparse": found == bytes(len(whole)),
        "flipped": len(found) == len(whole) and bits == 1,
        "swapped": len(found) == len(whole) and bits > 1 and any(found),
    }[state]


def with_digests(value: Layout, root: Path) -> Manifest:
    """What a format that writes digests down would promise."""
    whole = {name: value.read_bytes(name) for name in value.file_names}
    files = [
        ExpectedFile(
            name=name,
            size=len(content),
            digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
            n_items=None if any(content) else 0,
        )
        for name, content in whole.items()
    ]
    return Manifest(root=root, path=root / "shards.json", format="test", files=files)


@examples(100)
@given(layouts(states=[*ShardState]), st.booleans())
def test_the_report_is_what_the_oracle_expects(value: Layout, digests: bool) -> None:
    with shards_dir(value) as path:
        manifest = with_digests(value, path) if digests else None
        for level in LEVELS:
            report = check(manifest, level=level) if manifest else validate(path, level=level)
            expected = expected_findings(value, path, level=level, digests=digests)
            assert [(each.kind.value, each.path) for each in report.findings] == [*expected]
            unproven = expected_unproven(value, path, level=level, digests=digests)
            assert report.unproven == unproven
            assert not (digests and unproven)


def test_a_shard_without_examples_may_be_sparse(tmp_path: Path) -> None:
    value = Layout(n_shards=2, n_examples=4, sparse=[0, 1])
    found = expected_findings(value, tmp_path, level="valid", digests=True)
    assert [path.name for _, path in found] == ["acts000000.bin"]


def test_swapped_shards_hand_their_bytes_on_in_a_ring(tmp_path: Path) -> None:
    value = Layout(n_shards=4, swapped=[0, 2, 3])
    path = write_layout(value, tmp_path)
    found = [(path / name).read_bytes() for name in value.shard_names]
    order = [value.shard_names[index] for index in (2, 1, 3, 0)]
    assert found == [value.read_bytes(name) for name in order]


@pytest.mark.parametrize("n_bytes", [2, 14])
def test_states_serve_files_of_any_kind(n_bytes: int, tmp_path: Path) -> None:
    paths = [tmp_path / "root" / f"{state}.tar" for state in [*ShardState, "twin"]]
    (tmp_path / "root").mkdir()
    whole = [bytes([number + 1] * (n_bytes - 1) + [0]) for number in range(len(paths))]
    for path, content in zip(paths, whole, strict=True):
        path.write_bytes(content)
    apply_states(paths, [*ShardState, ShardState.SWAPPED])
    for path, state, content in zip(paths, ShardState, whole, strict=False):
        assert is_so(path, state, content), state


def test_states_that_can_not_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"aa")
    with pytest.raises(ValueError, match="found one"):
        Layout(swapped=[1])
    with pytest.raises(ValueError, match="found one"):
        apply_states([tmp_path / "a"], [ShardState.SWAPPED])
    with pytest.raises(ValueError, match="expected 0, one a file, found 1"):
        apply_states([], [ShardState.OK])


@pytest.mark.parametrize("ask", [expected_findings, expected_unproven, expected_pending])
def test_a_level_that_there_is_not(ask) -> None:
    value = Layout(format="receipts")
    with pytest.raises(ValueError, match="expected one of present, complete, valid, found 'full'"):
        ask(value, level="full", **({} if ask is expected_pending else {"path": "/data"}))


def test_expected_paths_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    value = Layout(missing=[0])
    assert expected_findings(value, "x")[0].path == tmp_path / "x" / "acts000000.bin"
    assert expected_unproven(value, "x", level="valid")[0] == tmp_path / "x" / "acts000001.bin"
