"""What contracts for readers share: directories, looks at them, and failures that say all."""

import enum
import fnmatch
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from shardproof.testing.contracts._child import ChildResult, Raised, crash_of, run_in_child
from shardproof.testing.samples._directories import (
    restore_modes,
    without_root_override,
    write_layout,
)
from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import ShardState, apply_states

MANY = 25  # looks: so long a property test may take


class Harm(enum.StrEnum):
    """Whom a failure of a contract hurts."""

    UNSAFE = "unsafe"  # samples are wrong or fewer, a hang, a crash, a wrong "missing"
    MANNERS = "manners"  # nobody is hurt: it refuses late, or says too little, or does not tidy up


class SampleDir(NamedTuple):
    """A directory made for one test."""

    path: Path
    shards: list[Path]
    """Absolute path of each shard, be it there or not."""


def asks_for_manners(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that no loader fails by hurting anybody: at strength ``safe`` it is left out."""
    test.__dict__["asks_for_manners"] = True
    return test


class Contract:
    """What each contract inherits that looks at directories in a process of its own."""

    strength = "strict"
    deadline = 5.0
    _request: pytest.FixtureRequest
    _made: tuple[tuple[Layout, Path], ...] = ()
    _tried = ""
    _about: Path | None = None  # the file of which is asked as what an error reports it

    def write_dir(self, value: Layout, base: Path) -> Path:
        """Write a whole directory of as many shards, and of that size, and return its path."""
        return write_layout(value, base / value.folder)

    def shard_files(self, path: Path) -> list[Path]:
        """Return the shards of a whole directory, in order."""
        return [path / name for name in sorted(fnmatch.filter(os.listdir(path), "acts*.bin"))]

    @pytest.fixture(autouse=True)
    def _begin(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        """Know which test runs, for what its failure says; leave out what is not asked for."""
        one_of("strength", self.strength, ["safe", "strict"])
        if self.strength == "safe" and getattr(request.function, "asks_for_manners", False):
            pytest.skip('manners: asked for at strength = "strict"')
        self._request, self._base = request, tmp_path
        yield
        restore_modes(tmp_path)

    def new_dir(self, value: Layout) -> SampleDir:
        """Write a layout in this contract's format."""
        whole = value.replace([ShardState.OK] * value.n_shards)
        path = self.write_dir(whole, self._base / f"contract-{len(self._made)}")
        self._made += ((value, path),)
        shards = self.shard_files(path)
        apply_states(shards, value.states)
        return SampleDir(path, shards)

    def look(self, function: Callable[[], Any], tried: str = "", *, looks: int = 1) -> ChildResult:
        """Call what looks so often, in a child in which ``chmod 0`` counts for root too."""
        self._tried = tried
        with without_root_override():
            return run_in_child(function, deadline=self.deadline * looks, about=self._about)

    def returned(self, outcome: ChildResult, harm: Harm = Harm.UNSAFE) -> Any:
        """Return what a child returned; any other end fails the test."""
        if crash := crash_of(outcome):
            self.fail(Harm.UNSAFE, crash)
        if error := outcome.error:
            self.fail(harm, f"it raised {error.kinds[0]}: {error.text}", error.report)
        return outcome.value

    def raised(self, outcome: ChildResult, harm: Harm = Harm.MANNERS) -> Raised:
        """Return what a child raised: an ordinary exception; any other end fails the test."""
        if crash := crash_of(outcome):
            self.fail(Harm.UNSAFE, crash)
        if outcome.error is None:
            self.fail(harm, "expected an error, found none")
        return outcome.error

    def demand(self, kept: object, what: str, harm: Harm = Harm.MANNERS) -> None:
        """Fail the test for what is not kept; for want of manners only at strength ``strict``."""
        if not kept and (harm is Harm.UNSAFE or self.strength == "strict"):
            self.fail(harm, what)

    def fail(self, harm: Harm, what: str, report: str = "") -> NoReturn:
        """Fail with all that it takes to see it again, and to know whether to care."""
        if harm is Harm.MANNERS and self.strength == "safe":
            pytest.skip(f"{harm}: {what}")
        self._request.node.user_properties.append(("shards_contract", harm.value))
        lines = [f"{harm}: {what}", *self._context(), report]
        pytest.fail("\n".join(lines).rstrip(), pytrace=False)

    def _context(self) -> Iterator[str]:
        test, damaged = self._request.function, [d for d in self._made if {*d[0].states} != {"ok"}]
        yield from [f"  tried: {self._tried}"] if self._tried else []
        for layout, path in damaged or self._made:
            yield f"  layout: {layout!r}"
            yield f"  on disk: {path}"
        yield f"  rule: {test.__name__}: {(inspect.getdoc(test) or '').partition(os.linesep)[0]}"
