"""The power is cut while a directory is sealed or repaired: nothing is worse, or told too soon.

What a disk would have kept is looked at after each system call, as after a reboot; once more while
somebody else syncs files of that disk.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof import SealError, seal
from shardproof._base import files
from tests.attacks import repairs, test_seals
from tests.attacks.repairs import Broken, put_back
from tests.attacks.tally import Tally
from tests.attacks.test_seals import LIST
from tests.helpers import power
from tests.helpers.killing import Begin

N_CUTS = 4
"""In the gate, of each directory."""


def cut(
    workspace: Path,
    tally: Tally,
    *,
    prepare: Callable[[Path], object],
    act: Callable[[Path], object],
    check: Callable[[Path, bool, str], None],
) -> None:
    """Cut the power at each call of an act, and look at the disk."""
    workspace.mkdir()

    def begun(path: Path, begin: Begin) -> None:
        begin()
        act(path)

    def look(path: Path, is_done: bool) -> None:
        tally.count()
        check(path, is_done, f"{workspace.name}, power cut {tally.n_cases}")

    power.at_every_cut(
        begun,
        workspace,
        prepare=prepare,
        check=look,
        beside_others=True,
        choose=lambda cuts: tally.sample(cuts, N_CUTS),
    )


def cut_a_seal(name: str, workspace: Path, tally: Tally) -> None:
    prepare = test_seals.DIRECTORIES[name]
    workspace.mkdir()
    prepare(workspace / "whole")
    old = _list_in(workspace / "whole")
    test_seals.sealing(workspace / "whole")
    whole = test_seals.tree(workspace / "whole")

    def check(path: Path, is_done: bool, case: str) -> None:
        found = _list_in(path)
        if found not in {old, test_seals.listed()}:
            tally.harm("lost" if found is None else "torn", f"{case}: {found!r}")
        if is_done and found != test_seals.listed():
            tally.harm("lie", f"{case}: told to be sealed, and {found!r} is there")
        with tally.harmless("lost", case):
            with contextlib.suppress(SealError):  # it is sealed
                seal(path, workers=1, update=found is not None and found == old)
            assert _list_in(path) == test_seals.listed()
        with tally.harmless("leftover", case):
            assert test_seals.tree(path).keys() <= whole.keys()

    cut(workspace / name, tally, prepare=prepare, act=test_seals.sealing, check=check)


def _list_in(path: Path) -> bytes | None:
    return (path / LIST).read_bytes() if (path / LIST).exists() else None


def cut_a_repair(made: Broken, workspace: Path, tally: Tally) -> None:
    def there(path: Path) -> Broken:
        where = path / made.path.name  # by which some formats are known
        return made._replace(path=where, base=where)

    def check(path: Path, is_done: bool, case: str) -> None:
        broken = there(path)
        for kind, what in broken.judged(is_ok=is_done):
            tally.harm(kind, f"{case}: {what}")
        with tally.harmless("lost", case):
            assert broken.repair().ok
        for kind, what in broken.judged(is_ok=True):
            tally.harm(kind, f"{case}, repaired again: {what}")

    cut(
        workspace,
        tally,
        prepare=lambda path: put_back(there(path).base, made.before),
        act=lambda path: there(path).repair(),
        check=check,
    )


@pytest.mark.attack("power cut: seals")
@pytest.mark.usefixtures("settled")
def test_of_a_seal(tmp_path: Path, tally: Tally) -> None:
    power.skip_where_not_permitted()
    for name in test_seals.DIRECTORIES if tally.is_exhaustive else ["half"]:
        cut_a_seal(name, tmp_path / name, tally)


@pytest.mark.attack("power cut: repair")
def test_of_a_repair(tmp_path: Path, tally: Tally) -> None:
    power.skip_where_not_permitted()
    for name, make in (
        repairs.KINDS.items() if tally.is_exhaustive else [*repairs.KINDS.items()][:2]
    ):
        (tmp_path / name).mkdir()
        cut_a_repair(make(tmp_path / name), tmp_path / f"{name} disk", tally)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file has changed lately: a change time can't be set back."""
    monkeypatch.setattr("shardproof._base.proofs.SETTLED_SECONDS", -3600.0)


@pytest.fixture
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls: nobody waits for the disk."""
    power.skip_where_not_permitted()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(files, "sync", lambda _: None)


@pytest.mark.usefixtures("no_syncs")
def test_a_seal_that_waits_for_no_disk_is_caught(tmp_path: Path) -> None:
    control = Tally("control", is_exhaustive=True)
    cut_a_seal("plain", tmp_path / "plain", control)
    assert control.harms["torn"] or control.harms["lie"]


@pytest.mark.usefixtures("no_syncs")
def test_a_repair_that_waits_for_no_disk_is_caught(tmp_path: Path) -> None:
    control = Tally("control", is_exhaustive=True)
    cut_a_repair(repairs.KINDS["listed"](tmp_path), tmp_path / "disk", control)
    assert control.harms["torn"] or control.harms["lie"]
