"""Checkpoints in one file a rank: described, written, damaged, judged."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shardproof.testing.samples._directories import MakeCheckpoint, writer
from shardproof.testing.samples._keywords import integer, one_of, refuse_unknown
from shardproof.testing.samples._layout import (
    Layout,
    SampleFormat,
    SampleOptions,
    index_of,
    layout_of,
)
from shardproof.testing.samples._oracle import KINDS, LEVELS, swapped_with
from shardproof.testing.samples._states import apply_states
from shardproof.testing.samples.checkpoint._content import (
    CheckpointMetadataState,
    CheckpointShardState,
    CheckpointTensor,
    as_tensor,
    checkpoint_document,
    elsewhere,
    harmed_shard,
    metadata_bytes,
    refuse_impossible,
    signed,
    tensor_bytes,
    whole_shard,
)

__all__ = [
    "FORMAT",
    "CheckpointMetadataState",
    "CheckpointOptions",
    "CheckpointShardState",
    "CheckpointTensor",
    "ExpectedProblem",
    "checkpoint_dir_maker",
    "expected_problems",
    "tensor_bytes",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions(SampleOptions):
    """What a checkpoint is like; another seed makes other tensors.

    Attributes:
        tensors: For each rank the tensors that it has, each as (name, dtype, shape). By default
            three small ones.
        metadata: What became of the metadata file, a `CheckpointMetadataState`.
        prefix: The name with which all of its files begin.
        step: When in the training it was saved.
        algorithm: How its shards are proven: ``"sha256"`` or ``"sha256-tree"``.

    Raises:
        TypeError: A step that is no integer.
        ValueError: A prefix that is no name; tensors for more ranks or fewer, or that the format
            can't say.
    """

    least_shards = 1
    tensors: tuple[tuple[CheckpointTensor, ...], ...] = None  # type: ignore[assignment] # implied
    metadata: CheckpointMetadataState = CheckpointMetadataState.OK
    prefix: str = "model"
    step: int = 1
    algorithm: str = "sha256"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle("step", integer("step", self.step, at_least=0))
        self.settle("metadata", one_of("metadata", self.metadata, CheckpointMetadataState))
        given: Any = self.tensors
        tensors: Any = self.implied()["tensors"] if given is None else given
        self.settle("tensors", tuple(tuple(map(as_tensor, each)) for each in tensors))
        if not self.prefix or {"/", "\0"} & {*self.prefix}:
            raise ValueError(f"prefix: expected a name without a directory, found {self.prefix!r}")
        one_of("algorithm", self.algorithm, ("sha256", "sha256-tree"))
        if (n_ranks := len(self.tensors)) != self.n_shards:
            raise ValueError(f"tensors: expected those of {self.n_shards} ranks, found {n_ranks}")

    def implied(self) -> Mapping[str, object]:
        """Return three small tensors for each rank."""
        return {
            "tensors": tuple(
                (
                    CheckpointTensor(f"layers.{rank}.weight", "float32", (4, 3)),
                    CheckpointTensor(f"layers.{rank}.bias", "bfloat16", (5,)),
                    CheckpointTensor(f"layers.{rank}.n_updates", "int64", ()),
                )
                for rank in range(self.n_shards)
            )
        }

    @property
    def is_unreadable(self) -> bool:
        """Whether the metadata file is unreadable."""
        return self.metadata is CheckpointMetadataState.UNREADABLE

    @property
    def metadata_name(self) -> str:
        """Name of the metadata file."""
        return f"{self.prefix}.metadata.json"

    def shard_name(self, index: int) -> str:
        """Return one rank's file; `shard_names` makes all of them, each time."""
        return f"{self.prefix}_shard_{index}.shard"


def _read_bytes(layout: Layout, name: str) -> bytes:
    options: CheckpointOptions = layout.options
    if name == options.metadata_name:
        return signed(checkpoint_document(layout))
    return whole_shard(layout, index_of(layout, name))[0]


def _write(layout: Layout, to: Path) -> None:
    options: CheckpointOptions = layout.options
    paths = [to / name for name in options.shard_names]
    for rank, path in enumerate(paths):
        _write_new(path, harmed_shard(layout, rank))
    # What becomes of a file is what becomes of any shard's, by the same word.
    apply_states(paths, [state if state in _OF_FILES else "ok" for state in layout.states])

    text, state = metadata_bytes(layout), options.metadata
    if text is not None:
        pruned = ".pruned" if state is CheckpointMetadataState.PRUNED else ""
        path = to / (options.metadata_name + pruned)
        _write_new(path, text)
        apply_states([path], [state if state in _OF_METADATA else "ok"])
    if state is CheckpointMetadataState.UNFINISHED:
        for rank in range(layout.n_shards):  # what each leaves for who writes the metadata
            note = {"step": options.step, "shard": whole_shard(layout, rank)[1]}
            _write_new(to / f"{options.prefix}_shard_{rank}.tensors.json", signed(note))
    if state is CheckpointMetadataState.ESCAPING:
        path = Path(os.path.normpath(to / elsewhere(layout)))
        path.parent.mkdir(exist_ok=True)
        _write_new(path, whole_shard(layout, layout.n_shards - 1)[0])


def _write_new(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)


_OF_FILES: set[str] = {*KINDS["complete"], CheckpointShardState.SWAPPED}
_OF_METADATA = {"directory", "empty", "truncated", "unreadable"}


class ExpectedProblem(NamedTuple):
    """Why a checkpoint is not whole."""

    rank: int | None
    """Whose shard it is about; None for the metadata file."""
    kind: str
    """Of a shard a value of `shardproof.FindingKind`, or ``unproven``; of the metadata file
    ``missing``, ``not-regular``, ``unreadable`` or ``refused``."""


def expected_problems(layout: Layout, *, level: str = "valid") -> tuple[ExpectedProblem, ...]:
    """Return every problem of a checkpoint; none, if it is whole as far as the level looks.

    Where the metadata file has a problem there is no other one: nothing else is believed then.
    Unreadable files are expected to be unreadable: for root that takes `without_root_override`.

    Args:
        layout: What was written.
        level: As for `expected_findings`, of each shard that the metadata name; at ``"complete"``
            its header too, and at ``"valid"`` a shard without a checksum is not proven.

    Raises:
        ValueError: Another level.

    Example:
        >>> layout = Layout(4, format="checkpoint", missing=[1], flipped=[2])
        >>> for problem in expected_problems(layout):
        ...     print(problem.rank, problem.kind)
        1 missing
        2 digest
        >>> expected_problems(Layout(format="checkpoint", flipped=[2]), level="complete")
        ()
    """
    one_of("level", level, LEVELS)
    if layout.metadata != "ok":
        return (ExpectedProblem(None, _METADATA.get(layout.metadata, "refused")),)
    others = swapped_with(layout)
    problems = []
    for rank, state in enumerate(layout.states):
        kind = _KINDS[level].get(state)
        if kind == "structure" and state == CheckpointShardState.SWAPPED:
            sizes = {whole_shard(layout, each)[1]["file_size"] for each in (rank, others[rank])}
            kind = "structure" if len(sizes) == 1 else "size"
        if kind:
            problems.append(ExpectedProblem(rank, kind))
    return tuple(problems)


_METADATA: dict[str, str] = {
    **dict.fromkeys(["missing", "unfinished", "pruned"], "missing"),
    "unreadable": "unreadable",
    "directory": "not-regular",
}

_ONLY_VALID: dict[str, str] = {
    **dict.fromkeys(["flipped", "flipped_padding", "zero_tail"], "digest"),
    "unchecked": "unproven",
}
_STRUCTURE = {*CheckpointShardState} - {"ok", *KINDS["complete"], *_ONLY_VALID}
_COMPLETE = KINDS["complete"] | dict.fromkeys(_STRUCTURE, "structure")
_KINDS: dict[str, dict[str, str]] = {
    "present": KINDS["present"],
    "complete": {**_COMPLETE},
    "valid": {**_COMPLETE, **_ONLY_VALID},
}


FORMAT = SampleFormat(
    name="checkpoint",
    states=CheckpointShardState,
    options=CheckpointOptions,
    manifest_names=lambda layout: (layout.metadata_name,),
    read_bytes=_read_bytes,
    write=_write,
    problems=lambda layout, level, _digests: (
        (kind, layout.metadata_name if rank is None else layout.options.shard_name(rank))
        for rank, kind in expected_problems(layout, level=level)
        if kind != "unproven"
    ),
    unproven=lambda layout, level, _digests: (
        layout.options.shard_name(rank)
        for rank, kind in expected_problems(layout, level=level)
        if kind == "unproven"
    ),
    refuse=refuse_impossible,
    folder=lambda layout: f"step_{layout.step}/{layout.prefix}",
    is_prefix=True,
)


def checkpoint_dir_maker(new_base: Callable[[], Path]) -> Iterator[MakeCheckpoint]:
    """Yield what the fixture ``make_checkpoint`` gives; restore the modes of all that it made."""
    _, *harmed = CheckpointShardState
    aliases = {f"{state}_ranks": state.value for state in harmed}
    with writer(new_base) as write:

        def make(
            world_size: int = 3,
            step: int = 1,
            *,
            directory: str | os.PathLike[str] | None = None,
            **keywords: Any,
        ) -> Path:
            refuse_unknown("make_checkpoint", {"n_shards"} & keywords.keys(), ["world_size"])
            n_shards = integer("world_size", world_size, at_least=1)
            said = {"n_shards": n_shards, "step": step, **keywords}
            others = ("world_size", "directory")
            layout = layout_of("make_checkpoint", FORMAT, said, also=others, **aliases)
            return write(layout, directory)

        yield make
