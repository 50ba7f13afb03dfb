"""A subject is killed, or the power cut, at each of its system calls; what it leaves is judged."""

import dataclasses
import itertools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from shardproof.staging import _proofs
from tests.attacks.children import Attacked, Run, prepared, run_in_child
from tests.attacks.subjects import Subject, damage, put_back
from tests.attacks.tally import Tally
from tests.helpers import power
from tests.helpers.killing import Begin, at_every_call, at_every_state, skip_where_not_permitted


class Moments(NamedTuple):
    attacked: Attacked
    again: Subject  # as the next run does it
    redone: Run  # in a directory in which nothing was done before

    def judge(self, root: Path, tally: Tally, case: str, *, is_done: bool) -> None:
        tally.count()
        subject, old, new = self.attacked.subject, self.attacked.old, self.attacked.clean.state
        assert subject.state is not None
        found = subject.state(root)
        for kind, what in damage(subject, found, old, new, is_done=is_done):
            tally.harm(kind, f"{case}: {what}")
        run = run_in_child(self.again, root)
        if run is None or run.error is not None:
            tally.harm("lost", f"{case}: then: {run and run.error}")
            return
        for name in {*new, *self.redone.state, *run.state}:
            is_there = name in found and found[name] == new.get(name)
            there, right = run.state.get(name), self.redone.state.get(name)
            if there != right and not (is_there and there == new[name]):
                tally.harm("lost", f"{case}: then {name} is {there} instead of {right}")
        known = {*self.attacked.before, *self.attacked.clean.tree, *self.redone.tree}
        if stray := [n for n in run.tree.keys() - known if not re.search(subject.left, n)]:
            tally.harm("leftover", f"{case}: then {sorted(stray)[:3]}")


def moments_of(subject: Subject, path: Path) -> Moments:
    attacked = prepared(subject, path)
    again = dataclasses.replace(subject, act=subject.redo or subject.act)
    attacked.put_back()
    redone = run_in_child(again, attacked.root)
    assert redone is not None
    assert redone.error is None, redone.error
    return Moments(attacked, again, redone)


def kill(moments: Moments, tally: Tally, n: int) -> None:
    """Kill it before its calls; of a control, each state of the directory is put back once."""
    skip_where_not_permitted()
    subject, root = moments.attacked.subject, moments.attacked.root

    def act(begin: Begin) -> None:
        begin()
        subject.act(root)

    def check(n_calls: int) -> None:
        case = f"{subject.name}, killed at system call {n_calls + 1}"
        moments.judge(root, tally, case, is_done=False)

    moments.attacked.put_back()
    if tally.wanted:
        at_every_state(act, root, check=check, choose=tally.until_found)
    else:
        at_every_call(
            act,
            prepare=moments.attacked.put_back,
            check=check,
            choose=lambda numbers: tally.each(numbers, n),
        )


def cut(moments: Moments, tally: Tally, n: int, patch: pytest.MonkeyPatch) -> None:
    """Cut the power at its system calls; after each cut the machine has another boot id."""
    power.skip_where_not_permitted()
    subject, boots = moments.attacked.subject, itertools.count()

    def act(disk: Path, begin: Begin) -> None:
        begin()
        subject.act(disk / "root")

    def check(disk: Path, is_done: bool) -> None:
        with patch.context() as after:
            after.setattr(_proofs, "this_process", lambda: f"boot {next(boots)}/1/1")
            case = f"{subject.name}, power cut {tally.n_cases}"
            moments.judge(disk / "root", tally, case, is_done=is_done)

    workspace = moments.attacked.root.with_name("disk")
    workspace.mkdir()
    power.at_every_cut(
        act,
        workspace,
        prepare=lambda disk: put_back(disk / "root", moments.attacked.template),
        check=check,
        choose=lambda cuts: tally.each(cuts, n),
    )
