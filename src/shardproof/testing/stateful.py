"""A state machine: a shards directory, appended to, damaged, repaired, and validated all along.

Needs hypothesis (``pip install 'shardproof[testing]'``).
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from shardproof._base.imports import extra

with extra():
    import hypothesis.strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

    from shardproof.testing.samples._directories import shards_dir, without_root_override
    from shardproof.testing.samples._layout import Layout
    from shardproof.testing.samples._oracle import expected_findings
    from shardproof.testing.samples._states import ShardState, apply_states, temporary_of
    from shardproof.testing.strategies import shard_states

__all__ = ["ShardsDirMachine"]

_PLACES = st.integers(0, 11)  # modulo how many there are


class ShardsDirMachine(RuleBasedStateMachine):
    """Runs a validator on a directory that changes, and holds every answer against the oracle.

    What a directory made once can't show is found here: a validator that remembers too much, or
    tells damage from repair by a time that did not change. Subclass it, say how to look, and give
    pytest its ``TestCase`` (docs/testing-kit.md). Without a `find_problems` of its own it runs
    `shardproof.validate`.

    Attributes:
        levels: Which levels to look at.
        max_shards: How large the directory grows.
        layout: What is there now.
        path: Where.
    """

    levels: tuple[str, ...] = ("present", "complete", "valid")
    max_shards = 6
    layout: Layout
    path: Path

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()

    def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
        """Return kind (of `ExpectedFinding`) and absolute path of each problem, in any order.

        Args:
            path: The shards directory; it is the same in every call of a run.
            level: One of ``levels``.
        """
        from shardproof import validate  # noqa: PLC0415 - not where another is judged

        report = validate(path, level=level)  # type: ignore[arg-type] # one of `levels`
        return [(finding.kind.value, finding.path) for finding in report.findings]

    @initialize(n_shards=st.integers(0, 3))
    def write(self, n_shards: int) -> None:
        """Begin with a whole directory."""
        self._stack.enter_context(without_root_override())
        # One example a shard: then one more shard leaves the content of all others as it was.
        self.layout = Layout(n_shards, examples_per_shard=1, d_model=2)
        self.path = self._stack.enter_context(shards_dir(self.layout))

    @precondition(lambda self: self.layout.n_shards < self.max_shards)
    @rule()
    def append(self) -> None:
        """Let the writer add a shard; like saev's it writes the manifest anew."""
        self.layout = self.layout.replace([*self.layout.states, ShardState.OK])
        self._write_shard(self.layout.n_shards - 1)
        for name in self.layout.manifest_names:
            (self.path / name).write_bytes(self.layout.read_bytes(name))

    @precondition(lambda self: self.layout.n_shards > 0)
    @rule(place=_PLACES, state=shard_states([*set(ShardState) - {ShardState.SWAPPED}]))
    def damage(self, place: int, state: ShardState) -> None:
        """Let something become of one shard."""
        index = place % self.layout.n_shards
        self._mend(index)
        self._bring({index: state})

    @precondition(lambda self: self.layout.n_shards > 1)
    @rule(place=_PLACES, distance=_PLACES)
    def swap(self, place: int, distance: int) -> None:
        """Let two shards change places."""
        n_shards = self.layout.n_shards
        pair = place % n_shards, (place + 1 + distance % (n_shards - 1)) % n_shards
        for index in (*pair, *self.layout.indices(ShardState.SWAPPED)):
            self._mend(index)
        self._bring(dict.fromkeys(sorted(pair), ShardState.SWAPPED))

    @precondition(lambda self: any(state != ShardState.OK for state in self.layout.states))
    @rule(place=_PLACES)
    def repair(self, place: int) -> None:
        """Write one shard again."""
        broken = [i for i, state in enumerate(self.layout.states) if state is not ShardState.OK]
        self._mend(broken[place % len(broken)])

    def _bring(self, changes: dict[int, ShardState]) -> None:
        """Bring whole shards into other states."""
        paths = [self.path / self.layout.shard_name(index) for index in changes]
        apply_states(paths, list(changes.values()))
        states = enumerate(self.layout.states)
        self.layout = self.layout.replace(changes.get(i, state) for i, state in states)

    def _mend(self, index: int) -> None:
        """Make a shard whole, and with one that was swapped all those."""
        if self.layout.states[index] is ShardState.OK:
            return  # not even a time changes, for a validator that goes by those
        swapped, states = self.layout.indices(ShardState.SWAPPED), [*self.layout.states]
        for each in swapped if index in swapped else (index,):
            self._write_shard(each)
            states[each] = ShardState.OK
        self.layout = self.layout.replace(states)

    def _write_shard(self, index: int) -> None:
        name = self.layout.shard_name(index)
        for path in (self.path / name, temporary_of(self.path / name)):
            try:
                path.unlink(missing_ok=True)
            except IsADirectoryError:
                path.rmdir()
        (self.path / name).write_bytes(self.layout.read_bytes(name))

    @invariant()
    def reports_what_the_oracle_expects(self) -> None:
        """Nothing that is wrong is left out, nothing that is whole is blamed."""
        for level in self.levels:
            found = sorted((str(kind), path) for kind, path in self.find_problems(self.path, level))
            expected = sorted(expected_findings(self.layout, self.path, level=level))
            assert found == expected, f"{self.layout} at level {level}"

    def teardown(self) -> None:
        """Remove the directory."""
        self._stack.close()
        super().teardown()
