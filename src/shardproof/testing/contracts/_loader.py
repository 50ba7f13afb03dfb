"""What every loader of shards owes its users."""

import contextlib
import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from shardproof.testing.contracts._child import Raised, fingerprint, left_by, snapshot
from shardproof.testing.contracts._contract import Contract, Harm, asks_for_manners
from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._oracle import KINDS, MAY_REPORT, wrong_kinds
from shardproof.testing.samples._states import ShardState

OpenLoader = Callable[..., Any]

_WHOLE = Layout(n_shards=4)
# 1 MiB a shard, in many samples: more than a loader holds of what it was not asked for yet.
_LARGE = Layout(n_shards=4, examples_per_shard=512, d_model=64)
_DELIVERY = "open the loader, and take all samples"


class ShardLoaderContract(Contract):
    """Tests for a loader: subclass it and define the fixture ``open_loader``.

    It returns what is called with a path, str or Path, and gives something to iterate over, as in
    docs/testing-kit.md. By itself the contract writes shards directories of saev. For another
    format override `write_dir` and `shard_files`; for a loader of batches `samples`, so that it
    takes them apart. Every look at the loader happens in a forked process with a deadline: a hang
    or a SIGBUS fails one test and no more. What is left of that process at its end is killed, and
    does not tidy up.

    Attributes:
        strength: ``"safe"``: only what is unsafe fails (samples that are wrong or fewer, a hang, a
            crash, a "missing" of what can't be read), and tests that ask for nothing but manners
            are skipped; ``"strict"``: both. docs/testing-kit.md has the table.
        refused: States that the loader must refuse when it is opened. Leave out only what your
            format can't notice.
        deadline: Seconds after which a look counts as a hang.
    """

    refused: Sequence[ShardState] = (*map(ShardState, KINDS["complete"]), ShardState.SPARSE)

    def samples(self, loader: Any) -> Iterable[Any]:
        """Return what the loader delivers: by default what iterating over it gives."""
        samples: Iterator[Any] = iter(loader)
        return samples

    def fingerprint(self, sample: Any) -> str:
        """Return text that is equal for equal samples."""
        return fingerprint(sample)

    def close(self, loader: Any) -> None:
        """Let go of a loader: by default its ``close()``, where it has one."""
        getattr(loader, "close", lambda: None)()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test of refusals once for each state of ``refused``."""
        if "refused_state" in metafunc.fixturenames:
            metafunc.parametrize("refused_state", getattr(metafunc.cls, "refused"), ids=str)  # noqa: B009

    @pytest.fixture(autouse=True)
    def _take(self, open_loader: OpenLoader) -> None:
        self._open = open_loader

    @contextlib.contextmanager
    def opened(self, path: str | Path, **options: Any) -> Iterator[Any]:
        """Open a loader and close it at the end."""
        loader = self._open(path, **options)
        try:
            yield loader
        finally:
            self.close(loader)

    def deliver(self, path: str | Path, **options: Any) -> list[str]:
        """Return everything that a fresh loader delivers."""
        with self.opened(path, **options) as loader:
            return [self.fingerprint(sample) for sample in self.samples(loader)]

    def delivered(self, path: str | Path, harm: Harm = Harm.UNSAFE, **options: Any) -> list[str]:
        """Return everything that a loader delivers in a child; an error fails the test."""
        outcome = self.look(lambda: self.deliver(path, **options), _DELIVERY)
        samples: list[str] = self.returned(outcome, harm)
        return samples

    def refused_at_opening(self, path: Path) -> Raised:
        """Return what opening a loader raises; any other end fails the test."""
        return self.raised(self.look(lambda: self.close(self._open(path)), "open the loader"))

    def refused_or_right(
        self,
        path: Path,
        whole: list[str],
        tried: str = _DELIVERY,
        within: AbstractContextManager[object] | None = None,
        after_first: Callable[[], object] | None = None,
    ) -> Raised | None:
        """Return the error that ends a pass, or none; wrong samples, fewer, or files gone fail."""

        def take() -> str:
            with within or contextlib.nullcontext(), self.opened(path) as loader:
                return self._wrong(loader, Counter(whole), after_first or str)

        before = snapshot(path)
        outcome = self.look(take, tried)
        if after_first is None:
            self._demand_kept(path, before)
        if outcome.error:
            return self.raised(outcome)
        if wrong := self.returned(outcome):
            self.fail(Harm.UNSAFE, wrong)
        return None

    def _wrong(self, loader: Any, left: Counter[str], after_first: Callable[[], object]) -> str:
        """Take all samples, and return what is wrong with them; the first one that is ends it."""
        for number, sample in enumerate(self.samples(loader)):
            if (text := self.fingerprint(sample)) not in left:
                return f"sample {number} is none of the whole directory's"
            left[text] -= 1
            if left[text] < 0:
                return f"sample {number} came once more"
            if not number:
                after_first()
        lost = left.total()
        return f"{lost} samples did not come, and no error was raised" if lost else ""

    def _context(self) -> Iterator[str]:
        yield from super()._context()
        states = {f"{state}" for layout, _ in self._made for state in layout.states}
        narrowed = sorted(states & {*self.refused})
        if narrowed and "refused_state" in self._request.fixturenames:
            kept = f"[s for s in ShardLoaderContract.refused if s not in {narrowed}]"
            yield f"  if your format can't notice it: refused = {kept}"

    def test_a_whole_directory_is_delivered(self) -> None:
        """Samples come, and each time the same ones, through a link and beside a leftover too."""
        first, again = (self.delivered(self.new_dir(_WHOLE).path) for _ in range(2))
        self.demand(first, "the loader delivered nothing", Harm.UNSAFE)
        same = Counter(first) == Counter(again)
        self.demand(same, "a second loader delivered other samples", Harm.UNSAFE)
        for state in (ShardState.LEFTOVER, ShardState.LINKED):
            path = self.new_dir(_WHOLE.replace([state] * _WHOLE.n_shards)).path
            same = Counter(self.delivered(path, Harm.MANNERS)) == Counter(first)
            self.demand(same, f"{state}: other samples were delivered", Harm.UNSAFE)

    def test_str_and_path_are_the_same(self) -> None:
        """Whichever way the directory is named."""
        path = self.new_dir(_WHOLE).path
        by_path, by_text = (self.delivered(kind(path), Harm.MANNERS) for kind in (Path, str))
        same = Counter(by_path) == Counter(by_text)
        self.demand(same, "str and Path gave other samples", Harm.UNSAFE)

    def test_two_loaders_do_not_disturb_each_other(self) -> None:
        """One process reads two directories in turns."""
        paths = [self.new_dir(_WHOLE.replace(d_model=n)).path for n in (8, 16)]
        alone = [Counter(self.delivered(path)) for path in paths]

        def in_turns() -> list[list[str]]:
            with self.opened(paths[0]) as a, self.opened(paths[1]) as b:
                runs = [map(self.fingerprint, self.samples(loader)) for loader in (a, b)]
                firsts = [next(run) for run in runs]
                return [[first, *run] for first, run in zip(firsts, runs, strict=True)]

        together = self.returned(self.look(in_turns, "take samples of two in turns", looks=2))
        same = [*map(Counter, together)] == alone
        self.demand(same, "in turns, other samples came than alone", Harm.UNSAFE)

    @asks_for_manners
    def test_damage_is_refused_on_opening(self, refused_state: ShardState) -> None:
        """Not later, deep in a training run."""
        self.refused_at_opening(self.new_dir(_between_whole(refused_state)).path)

    @asks_for_manners
    def test_a_refusal_names_the_absolute_path(self, refused_state: ShardState) -> None:
        """Also where the directory was named by a relative one: the log is read elsewhere."""
        path, shards = self.new_dir(_between_whole(refused_state))

        def by_a_relative_path() -> None:
            os.chdir("/")
            self.close(self._open(os.path.relpath(path)))

        error = self.raised(self.look(by_a_relative_path, "open the loader by a relative path"))
        self._demand_name(error, shards[1])

    @asks_for_manners
    def test_a_refusal_says_what_is_wrong(self, refused_state: ShardState) -> None:
        """By its findings, its words or its class; what says nothing of these is no lie."""
        path, shards = self.new_dir(_between_whole(refused_state))
        self._about = shards[1]
        if error := self.look(lambda: self.deliver(path), _DELIVERY).error:
            found, may_be = error.reported, MAY_REPORT[refused_state]
            what = f"expected {' or '.join(may_be)}, found {' or '.join(found)}: {error.text}"
            self.demand(not wrong_kinds(found, refused_state), what)

    @asks_for_manners
    def test_all_problems_are_named_at_once(self) -> None:
        """A user who restores one shard at a time waits in the job queue for each."""
        path, shards = self.new_dir(_between_whole(*self.refused))
        text = self.refused_at_opening(path).text
        unnamed = [shard.name for shard in shards[1:-1] if str(shard) not in text]
        self.demand(not unnamed, f"not named: {', '.join(unnamed)}; the text is: {text}")
        for whole in (shards[0], shards[-1]):
            self.demand(str(whole) not in text, f"{whole} is whole, and blamed")

    def test_damage_is_never_delivered(self, refused_state: ShardState) -> None:
        """The right samples or an error, be it a late one: no others, and not fewer in silence."""
        whole = self.delivered(self.new_dir(_between_whole(ShardState.OK)).path)
        self.refused_or_right(self.new_dir(_between_whole(refused_state)).path, whole)

    @asks_for_manners
    def test_a_missing_shard_is_a_file_not_found_error(self) -> None:
        """Which is what callers catch."""
        for state in self.refused:
            if "missing" in MAY_REPORT[state]:
                self._demand_not_found(self.new_dir(_between_whole(state)).path)

    def test_no_directory_is_a_file_not_found_error(self, tmp_path: Path) -> None:
        """And says which; without a directory, no samples are no success."""
        self._refuse_samples_of(tmp_path / "nowhere")
        if self.strength == "strict":
            self._demand_not_found(tmp_path / "nowhere")

    @pytest.mark.parametrize("kind", ["empty-directory", "file"])
    def test_what_is_no_shards_directory_is_refused(self, tmp_path: Path, kind: str) -> None:
        """An empty directory is what a purge or a wrong mount leaves: no data is no success."""
        path = tmp_path / kind
        path.write_bytes(b"text") if kind == "file" else path.mkdir()
        self._refuse_samples_of(path)

    @pytest.mark.parametrize("cause", ["unreadable", "loop", "open", "stat"])
    def test_what_could_not_be_looked_at_is_not_missing(self, cause: str) -> None:
        """A shard that nobody may read, or EIO from it: it may be whole; don't make it anew."""
        whole = self.delivered(self.new_dir(_between_whole(ShardState.OK)).path)
        is_state = cause in {*ShardState}
        path, shards = self.new_dir(_between_whole(ShardState(cause if is_state else "ok")))
        self._about, name = shards[1], shards[1].name
        within = None if is_state else _failing(path, cause, name)
        tried = _DELIVERY if is_state else f"{_DELIVERY}; {cause} fails for a shard with EIO"
        error = self.refused_or_right(path, whole, tried, within)
        if error:
            what = f"{name} could not be looked at, and is called missing: {error.text}"
            self.demand("missing" not in error.reported, what, Harm.UNSAFE)
            self.demand(name in error.text, f"{name} is not named in: {error.text}")

    @pytest.mark.parametrize("fault", ["vanished", "shrunk", "emptied"])
    def test_damage_during_iteration(self, fault: str) -> None:
        """An error that names a shard, or the right samples: no hang, no SIGBUS, no other bytes."""
        path, shards = self.new_dir(_LARGE)
        whole = self.delivered(path)

        def damage() -> None:
            for shard in shards:
                _DURING[fault](shard)

        tried = f"take a sample; all shards are {fault}; take the others"
        self._demand_name(self.refused_or_right(path, whole, tried, after_first=damage), *shards)

    @pytest.mark.parametrize("fault", ["eio", "short"])
    def test_reads_that_fail(self, fault: str) -> None:
        """A read that fails is an error, a short one is no end; or the samples are right."""
        path, shards = self.new_dir(_WHOLE)
        whole = self.delivered(path)
        within = _failing(path, "read", shards[1].name, is_short=fault == "short")
        tried = f"{_DELIVERY}; reads of a shard are {fault}"
        self._demand_name(self.refused_or_right(path, whole, tried, within), *shards)

    @asks_for_manners
    @pytest.mark.parametrize("end", ["exhausted", "abandoned", "refused"])
    def test_nothing_is_left_behind(self, end: str) -> None:
        """No thread, process or descriptor, once a loader is closed and gone."""
        value = _between_whole(ShardState.MISSING) if end == "refused" else _WHOLE
        path = self.new_dir(value).path
        expected = [Exception] if end == "refused" else []

        def use() -> None:
            with contextlib.suppress(*expected), self.opened(path) as loader:
                for _ in self.samples(loader):
                    if end == "abandoned":
                        break

        outcome = self.look(lambda: left_by(use), f"open four loaders, each {end}", looks=4)
        found = self.returned(outcome)
        self.demand(not found, f"left behind: {', '.join(found)}")

    def test_the_directory_is_left_as_it_was(self) -> None:
        """A reader writes nothing: others read the same directory, which may be read-only."""
        path = self.new_dir(_WHOLE).path
        before = snapshot(path)
        self.delivered(path)
        self._demand_kept(path, before)
        self.demand(snapshot(path) == before, f"{path} was changed")

    def _refuse_samples_of(self, path: Path) -> None:
        """Look where there are none: an error, and at strength ``strict`` on opening."""
        outcome = self.look(lambda: self.deliver(path), _DELIVERY)
        if outcome.error is None:
            self.fail(Harm.UNSAFE, f"{path}: {len(self.returned(outcome))} samples, and no error")
        self.raised(outcome)
        if self.strength == "strict":
            self._demand_name(self.refused_at_opening(path), path)

    def _demand_kept(self, path: Path, before: dict[str, tuple[int, int, int]]) -> None:
        after = snapshot(path)
        for file, was in before.items():
            now = after.get(file)
            kept = now == was or (now and stat.S_ISDIR(was[0]) and now[0] == was[0])
            self.demand(kept, f"{file} was {'changed' if now else 'removed'}", Harm.UNSAFE)

    def _demand_name(self, error: Raised | None, *paths: Path) -> None:
        named = error is None or any(str(path) in error.text for path in paths)
        what = f"the absolute path of {paths[0].name} is not named in: {error and error.text}"
        self.demand(named, what)

    def _demand_not_found(self, path: Path) -> None:
        kinds = self.refused_at_opening(path).kinds
        self.demand("FileNotFoundError" in kinds, f"expected FileNotFoundError, found {kinds[0]}")


@contextlib.contextmanager
def _failing(path: Path, call: str, name: str, *, is_short: bool = False) -> Iterator[None]:
    """Let all calls for one file fail with EIO, or be short."""
    with FileSystemFaults(path) as fs:
        fault, how = (fs.short, 7) if is_short else (fs.fail, errno.EIO)
        fault(call, how, times=None, match=name, optional=True)
        yield


_DURING: dict[str, Callable[[Path], None]] = {
    "vanished": os.unlink,
    "shrunk": lambda shard: os.truncate(shard, shard.stat().st_size // 2),
    "emptied": lambda shard: os.truncate(shard, 0),
}


def _between_whole(*states: ShardState) -> Layout:
    states = (ShardState.OK, *states, ShardState.OK)
    return _WHOLE.replace(states, n_examples=len(states) * _WHOLE.examples_per_shard)
