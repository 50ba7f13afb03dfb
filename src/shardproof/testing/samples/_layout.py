"""One value that describes a sample directory of any format."""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, SupportsIndex

from shardproof.testing.samples._keywords import integer, integers, one_of, refuse_unknown
from shardproof.testing.samples._states import ShardState, apply_states

FORMATS = {
    "saev": "saev:FORMAT",
    "receipts": "receipts:FORMAT",
    "checkpoint": "checkpoint:FORMAT",
    "mds": "_foreign.datasets:MDS",
    "webdataset": "_foreign.datasets:WEBDATASET",
    "parquet": "_foreign.datasets:PARQUET",
    "safetensors": "_foreign.models:SAFETENSORS",
    "hf-cache": "_foreign.models:HF_CACHE",
    "digests": "_foreign.datasets:DIGESTS",
}
"""The formats of the kit, by name, and where each is, beside this module."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """What a sample directory is like when it is whole; each format has a class of its own.

    A format's options are further fields with defaults, and each is a keyword of `Layout`: a class
    that has some needs ``@dataclass(frozen=True)`` too.

    Attributes:
        n_shards: How many shards the directory lists.
        seed: Another seed makes other bytes.

    Raises:
        TypeError: A number that is no integer.
        ValueError: A number below its least.
    """

    least_shards: ClassVar[int] = 0
    n_shards: int
    seed: int = 0

    def __post_init__(self) -> None:
        self.settle("n_shards", integer("n_shards", self.n_shards, at_least=self.least_shards))
        self.settle("seed", integer("seed", self.seed))

    def settle(self, name: str, value: object) -> None:
        """Set a field, although the value is frozen: only while it is made."""
        object.__setattr__(self, name, value)

    def implied(self) -> Mapping[str, object]:
        """Return the options that follow from the others where they are not given."""
        return {}

    @property
    def is_unreadable(self) -> bool:
        """Whether there is an unreadable file that is no shard."""
        return False

    @property
    def shard_names(self) -> tuple[str, ...]:
        """File name of each shard, in order."""
        return tuple(map(self.shard_name, range(self.n_shards)))

    @property
    def file_names(self) -> tuple[str, ...]:
        """Name of each file that the directory must hold, in its order."""
        return self.shard_names

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        raise NotImplementedError


_NAMELESS: set[str] = {ShardState.MISSING, ShardState.UNFINISHED}


# No lambdas: a format of one's own is pickled with these, when a layout is sent elsewhere.
def _its_name(layout: "Layout") -> str:
    return layout.format.name


def _write_files(layout: "Layout", root: Path) -> None:
    for name in (*layout.file_names, *layout.manifest_names):
        (root / name).write_bytes(layout.read_bytes(name))
    apply_states([root / name for name in layout.shard_names], layout.states)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleFormat:
    """What the kit knows of one on-disk format: ``Layout(format=...)`` takes it, or its name.

    With one for a format of your own, `Layout`, `write_layout`, `shards_dir`, `expected_findings`,
    the fixture ``make_shards_dir`` and the strategy ``layouts`` serve that format too.

    Attributes:
        name: What it is called.
        options: The class of its options, a `SampleOptions` that names the files.
        manifest_names: Returns the names of the files that list the others.
        read_bytes: Returns the bytes of a whole file of the directory by its name.
        write: Writes the files into a directory, which is there; nothing is written over. By
            default all of them, and then it brings each shard into its `ShardState`.
        states: What can become of a shard; the first is that of a whole one. The same harm has the
            same word as in `ShardState`, which is the default.
        problems: Yields kind and file name of every problem that a correct validator reports at a
            level, in order; the last argument is whether the manifest states digests. By default
            what each `ShardState` shows.
        unproven: Yields the names of files without a problem of which nothing is proven. By default
            all of them at ``valid``, where the manifest states no digests.
        refuse: Raises a ValueError for what can't be.
        folder: Returns where below a new directory the fixtures write a sample, with the names
            that its writer gives; by default the format's name.
        is_prefix: Whether its path is what the paths of its files begin with, and no directory.
            The folder ends in that prefix.
        known_by_shards: Whether only the names of shards that are there tell of a directory, so
            that there is none in which all are ``missing`` or ``unfinished``.
    """

    name: str
    options: type[Any]
    manifest_names: Callable[["Layout"], Sequence[str]]
    read_bytes: Callable[["Layout", str], bytes]
    write: Callable[["Layout", Path], None] = _write_files
    states: type[StrEnum] = ShardState
    problems: Callable[["Layout", str, bool], Iterable[tuple[str, str]]] | None = None
    unproven: Callable[["Layout", str, bool], Iterable[str]] | None = None
    refuse: Callable[["Layout"], None] | None = None
    folder: Callable[["Layout"], str] = _its_name
    is_prefix: bool = False
    known_by_shards: bool = False

    def __post_init__(self) -> None:
        hints = inspect.get_annotations(self.options).items()
        fields = [name for name, hint in hints if "ClassVar" not in str(hint)]
        if fields and "__dataclass_fields__" not in vars(self.options):
            problem = f"expected @dataclass(frozen=True) above class {self.options.__name__}"
            raise TypeError(f"options: {problem}, or {', '.join(fields)} would be no options")

    def __repr__(self) -> str:
        return repr(self.name)

    def can_be(self, states: Iterable[str]) -> bool:
        """Whether there can be a directory of shards in these states."""
        return not self.known_by_shards or not _NAMELESS.issuperset(states)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Let those of the kit be pickled by their name: layouts are sent to other processes."""
        if self.name in FORMATS and sample_format(self.name) is self:
            return sample_format, (self.name,)
        return super().__reduce_ex__(protocol)


def sample_format(name: str | SampleFormat) -> SampleFormat:
    """Return one of the kit's formats by its name, or one of your own as it is."""
    if isinstance(name, SampleFormat):
        return name
    module, _, attribute = FORMATS[one_of("format", name, FORMATS)].partition(":")
    home = importlib.import_module(f"shardproof.testing.samples.{module}")
    found: SampleFormat = getattr(home, attribute)
    return found


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Layout:
    """One sample directory of any format as a value, whose repr is the call; nothing is written.

    Each state of the format but that of a whole shard is a keyword, and takes the indices of the
    shards in that state; all others are whole. So is each of the format's options. Both are
    attributes too: ``layout.options.d_model`` is ``layout.d_model``.

    Args:
        n_shards: How many shards the directory lists; of a checkpoint, how many ranks there are.
        format: A name, such as ``"saev"`` or ``"mds"``, or a `SampleFormat` of your own.
        seed: Another seed makes other bytes.
        **keywords: States, such as ``missing=[1]``, and options.

    Attributes:
        format: The format.
        states: The state of each shard, in order.
        options: What the directory is like when whole.

    Raises:
        TypeError: Another keyword, or a count or an index that is no integer.
        ValueError: No such format; an index out of range or named twice, one single swapped shard,
            or a shape that no directory of the format can have.

    Example:
        >>> Layout(n_shards=4, missing=[1], empty=[2])
        Layout(n_shards=4, missing=[1], empty=[2])
        >>> Layout(format="checkpoint", truncated=[0]).file_names[0]
        'model_shard_0.shard'
    """

    format: SampleFormat
    states: tuple[StrEnum, ...]
    options: Any

    def __init__(
        self,
        n_shards: int = 3,
        *,
        format: str | SampleFormat = "saev",  # noqa: A002 - the one word for it
        seed: int = 0,
        **keywords: Any,
    ) -> None:
        said = {"n_shards": n_shards, "seed": seed, **keywords}
        vars(self).update(vars(layout_of("Layout", format, said)))

    @classmethod
    def of(
        cls,
        states: Iterable[str],
        *,
        format: str | SampleFormat = "saev",  # noqa: A002 - the one word for it
        **options: Any,
    ) -> "Layout":
        """Return the layout of which each shard's state is given, in order.

        Example:
            >>> Layout.of(["ok", "missing"])
            Layout(n_shards=2, missing=[1])
        """
        form = sample_format(format)
        known = {state.value: state for state in form.states}
        found = tuple(
            known.get(state) or one_of("states", state, [*form.states]) for state in states
        )
        made = cls.__new__(cls)
        whole = form.options(n_shards=len(found), **options)
        vars(made).update(format=form, states=found, options=whole)  # frozen, once it is returned
        if len(made.indices("swapped")) == 1:
            raise ValueError("swapped: expected none, or two or more, found one")
        if not form.can_be(found):
            raise ValueError("missing: expected one shard or more that is there, found none")
        if form.refuse is not None:
            form.refuse(made)
        return made

    def replace(self, states: Iterable[str] | None = None, **options: Any) -> "Layout":
        """Return this layout with other options, or with other states, one for each shard.

        Example:
            >>> Layout(missing=[1], d_model=2).replace(["ok"] * 2, labels=True)
            Layout(n_shards=2, d_model=2, labels=True)
        """
        said = dict(self._said()) | options
        return Layout.of(self.states if states is None else states, format=self.format, **said)

    def __getattr__(self, name: str) -> Any:
        """Return an option, or what follows from the options."""
        if name == "options" or name.startswith("__"):  # not there yet: in a copy, in a pickle
            raise AttributeError(name)
        return getattr(self.options, name)

    def __repr__(self) -> str:
        said: dict[str, object] = {"n_shards": self.n_shards}
        if self.format.name != "saev":
            said["format"] = self.format
        for state in [*self.format.states][1:]:
            if indices := self.indices(state):
                said[state.value] = [*indices]
        said |= self._said()
        return f"Layout({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the call for Hypothesis and IPython too, which would list a dataclass's fields."""
        printer.text(repr(self))

    def _said(self) -> Iterator[tuple[str, object]]:
        """Yield the options that make this value, without those at their default; the seed last."""
        implied = self.options.implied()
        fields = [each for each in dataclasses.fields(self.options) if each.name != "n_shards"]
        for field in sorted(fields, key=lambda field: field.name == "seed"):
            value = getattr(self.options, field.name)
            if value != implied.get(field.name, field.default):
                yield field.name, value.value if isinstance(value, StrEnum) else value

    @property
    def n_shards(self) -> int:
        """How many shards the directory lists."""
        return len(self.states)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Name of each file that the directory must hold, in its order."""
        names: tuple[str, ...] = self.options.file_names
        return names

    @property
    def folder(self) -> str:
        """Where the fixtures write it, below a directory, such as ``saev/shards/<hash>``."""
        return self.format.folder(self)

    @property
    def manifest_names(self) -> tuple[str, ...]:
        """Name of each file that lists the others."""
        return tuple(self.format.manifest_names(self))

    @property
    def is_unreadable(self) -> bool:
        """Whether there is a file that no user may read."""
        return "unreadable" in self.states or self.options.is_unreadable

    def indices(self, state: str) -> tuple[int, ...]:
        """Return which shards are in this state."""
        return tuple(index for index, found in enumerate(self.states) if found == state)

    def read_bytes(self, name: str) -> bytes:
        """Return the bytes of a whole file of the directory, whatever became of it.

        Args:
            name: One of ``file_names`` or ``manifest_names``.

        Raises:
            ValueError: There is no such file.

        Example:
            >>> len(Layout(n_shards=2).read_bytes("acts000001.bin"))
            1024
        """
        return self.format.read_bytes(self, name)


def layout_of(
    function: str,
    format: str | SampleFormat,  # noqa: A002 - the one word for it
    keywords: Mapping[str, Any],
    *,
    also: Iterable[str] = ("format",),
    **aliases: str,
) -> Layout:
    """Return the layout of a function's keywords; ``aliases`` are other names of states."""
    form = sample_format(format)
    whole, *others = form.states
    names = {state.value: state for state in others}
    names |= {alias: form.states(word) for alias, word in aliases.items()}
    options = {field.name for field in dataclasses.fields(form.options)}
    refuse_unknown(function, keywords, {*options, *names, *also})
    said = dict(keywords)
    n_shards = integer("n_shards", said.pop("n_shards"), at_least=form.options.least_shards)
    taken: dict[int, str] = {}
    for name in names:
        for index in integers(name, said.pop(name, None)):
            if not 0 <= index < n_shards:
                raise ValueError(f"{name}: expected indices from 0 below {n_shards}, found {index}")
            if index in taken:
                raise ValueError(f"{name}: shard {index} is already named under {taken[index]}")
            taken[index] = name
    states = (names[taken[i]] if i in taken else whole for i in range(n_shards))
    return Layout.of(states, format=form, **said)


def index_of(layout: Layout, name: str, *others: Callable[[int], str], first: int = 0) -> int:
    """Return of which shard a file is; not by a list of all, since each is asked for its bytes."""
    for number in re.findall("[0-9]+", name.rpartition("/")[2]):
        index = int(number) - first
        names = (layout.options.shard_name, *others)
        if 0 <= index < layout.n_shards and name in (each(index) for each in names):
            return index
    raise unknown(layout, name)


def unknown(layout: Layout, name: str) -> ValueError:
    """Return the error of a name that no file has."""
    known = [*layout.file_names, *layout.manifest_names]
    some = known if len(known) < 9 else [*known[:3], "...", *known[-3:]]
    return ValueError(f"name: expected one of {', '.join(some)}, found {name!r}")
