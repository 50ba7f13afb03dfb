"""Runs: the directory of one configuration, found again by what it was configured with."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shardproof._base import files
from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import real_root
from shardproof._base.opening import is_there, names_in, real_path, refuse_no_path
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.receipts._canonical import canonical_json, hash_of, plain
from shardproof.receipts._claims import refuse_times
from shardproof.receipts._directories import PLAN_FILE, RECEIPTS, read_header
from shardproof.receipts._plan import Plan, encode_plan, resolved_tokenizer
from shardproof.receipts._store import ReceiptStore

logger = logging.getLogger("shardproof.receipts")

_CONFIG_FILE = "config.json"


class Run(msgspec.Struct, frozen=True):
    """The directory of one configuration, for the plans of its data sets.

    Attributes:
        path: ``<output_dir>/runs/<run_hash>``.
        run_hash: 16 hexadecimal digits; after ``force=True`` with ``-2``, ``-3``, ... behind.
    """

    path: Path
    run_hash: str

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> "Run":
        """Return the run in ``<output_dir>/runs/<run_hash>``, without its configuration.

        Raises:
            ManifestNotFoundError: `open_run` made none there.
            OSError: It could not be checked (EIO, ESTALE, ...).

        Example:
            >>> from shardproof import receipts
            >>> run = receipts.open_run(output_dir, datasets=["corpus"])
            >>> receipts.Run.load(run.path) == run
            True
        """
        refuse_no_path(path=path)
        run_dir = Path(real_root(path))
        if not is_there(run_dir / _CONFIG_FILE):
            problem = "there is no such file, which each run has; open_run makes a run"
            raise ManifestNotFoundError(problem, path=run_dir / _CONFIG_FILE)
        return cls(run_dir, run_dir.name)

    @checked
    def store(
        self, plan: Plan, *, heartbeat: float = 30.0, stale_after: float = 300.0
    ) -> ReceiptStore:
        """Return the receipts of a plan in this run; the plan is written if it is new.

        Where another plan for the same data set is here, which shares nothing with this one, a
        warning says in what they differ. Where this plan is here and owed other kinds of outputs,
        it owes those of ``plan`` from now on, and a warning says so.

        The times are as for `ReceiptStore`.

        Raises:
            ReceiptError: The plan is too large to be read again.
            ManifestError: The plan that is here can't be read.
            OSError: It can't be written.
        """
        refuse_times(heartbeat, stale_after)
        plan_dir = self.path / "datasets" / plan.dataset_name / plan.plan_hash
        files.sweep_leftovers(plan_dir, names_in(plan_dir))
        if not is_there(plan_dir / PLAN_FILE):
            _warn_of_others(plan_dir.parent, plan)
            files.make_directories(plan_dir / RECEIPTS)
            self._write(plan_dir, plan)
        elif plan.kinds and plan.kinds != (found := read_header(os.fspath(plan_dir)).kinds):
            was = ", ".join(map(quoted, found)) or "what each receipt says"
            logger.warning(
                "Plan %s owed %s; from now on each shard owes %s",
                shown(plan.plan_hash),
                shown(was),
                shown(", ".join(plan.kinds)),
            )
            self._write(plan_dir, msgspec.structs.replace(Plan.load(plan_dir), kinds=plan.kinds))
        return ReceiptStore(plan_dir, heartbeat=heartbeat, stale_after=stale_after, plan=plan)

    def _write(self, plan_dir: Path, plan: Plan) -> None:
        recorded = msgspec.structs.replace(plan, run_hash=self.run_hash)
        files.write_whole(plan_dir / PLAN_FILE, encode_plan(recorded))


@checked
def open_run(
    output_dir: str | os.PathLike[str],
    *,
    datasets: Sequence[object],
    tokenizer: Mapping[str, object] | None = None,
    output: Mapping[str, object] | None = None,
    sample: Mapping[str, object] | None = None,
    force: bool = False,
) -> Run:
    """Return the run of a configuration: the one that is there, or a new one.

    Args:
        output_dir: Where runs are, on a file system that all jobs see and that is not purged.
        datasets: Name or settings of each data set. This and what follows is values of JSON, and
            paths; it names the run, so nothing that changes from job to job belongs in it.
        tokenizer: ``pin.tokenizer(...)``; its ``resolved_revision`` must be there.
        output: Settings of what is written: format, number of shards, ...
        sample: Which part is taken, and the seed.
        force: Begin anew: a fresh directory beside the old one, which stays as it is. Later calls
            without ``force`` go on with the newest.

    Raises:
        ReceiptError: A tokenizer without a revision.
        TypeError: A setting that JSON has no word for.
        ValueError: NaN or infinity in the settings.
        OSError: The directory can't be made.

    Example:
        >>> from shardproof import receipts
        >>> run = receipts.open_run(output_dir, datasets=["corpus"])
        >>> receipts.open_run(output_dir, datasets=["corpus"]) == run
        True
        >>> fresh = receipts.open_run(output_dir, datasets=["corpus"], force=True)
        >>> fresh.run_hash == run.run_hash + "-2"
        True
    """
    refuse_no_path(output_dir=output_dir)
    if isinstance(datasets, str):
        raise TypeError("datasets: expected a list, found str")
    inputs = {"datasets": datasets, "tokenizer": resolved_tokenizer(tokenizer)}
    settings = plain(inputs | {"output": output, "sample": sample}, "open_run")
    runs = Path(real_path(output_dir), "runs")
    name = hash_of(settings)
    matches = (re.fullmatch(rf"{name}(?:-([1-9][0-9]*))?", entry) for entry in names_in(runs))
    newest = max((int(match[1] or 1) for match in matches if match), default=0)
    files.make_directories(runs)
    if force:
        newest = _make_generation(runs, name, newest + 1)
    path = runs / _directory_name(name, newest or 1)
    files.make_directories(path)
    files.sweep_leftovers(path)
    if not is_there(path / _CONFIG_FILE):
        files.write_whole(path / _CONFIG_FILE, canonical_json(settings) + b"\n")
    return Run(path, path.name)


def _directory_name(name: str, generation: int) -> str:
    return name if generation == 1 else f"{name}-{generation}"


def _make_generation(runs: Path, name: str, generation: int) -> int:
    """Make a fresh directory that survives a power cut; two jobs at once get one each."""
    while True:
        path = runs / _directory_name(name, generation)
        try:
            os.mkdir(path)
        except FileExistsError:
            generation += 1
            continue
        try:
            files.sync_names(os.fspath(runs))
        except OSError:
            # Or the next job would go on in a directory that may be gone after a power cut.
            files.remove_empty(os.fspath(path))
            raise
        return generation


_COMPARED = (
    "n_shards",
    "source_fingerprint",
    "resolved_tokenizer",
    "determinism_constraints",
    "config",
)


def _warn_of_others(siblings: Path, plan: Plan) -> None:
    for name in names_in(siblings):
        try:
            other = Plan.load(siblings / name)
        except ManifestNotFoundError:
            continue
        except (ManifestError, OSError) as error:
            logger.warning("An earlier plan can't be read: %s", told(error))
            continue
        differing = [name for name in _COMPARED if getattr(other, name) != getattr(plan, name)]
        logger.warning(
            "Plan %s of data set %s shares no shard with plan %s, which is here too: another %s",
            shown(plan.plan_hash),
            shown(plan.dataset_name),
            shown(other.plan_hash),
            shown(", ".join(differing)),
        )
