"""One value that describes a shards directory of saev.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from shardproof.testing.samples._keywords import integer, integers, refuse_unknown
from shardproof.testing.samples._named_states import indices_by_state, taken_states
from shardproof.testing.samples.saev._states import ShardState

__all__ = ["Defaults", "Layout", "LayoutKeywords", "Shape", "layout", "layout_of"]

_LEAST = {
    "examples_per_shard": 1,
    "content_tokens_per_example": 1,
    "d_model": 1,
    "n_examples": 0,
}


class Defaults:
    """The shape of a directory about which nothing is said: 1 KiB a shard."""

    examples_per_shard = 4
    layers = (6, 11)
    content_tokens_per_example = 3
    cls_token = True
    d_model = 8
    labels = False


class Shape(TypedDict, total=False):
    """The keywords of `layout` that say how large a directory is; for those who pass them on."""

    n_examples: int | None
    examples_per_shard: int
    layers: Sequence[int]
    content_tokens_per_example: int
    cls_token: bool
    d_model: int
    labels: bool


class LayoutKeywords(Shape, total=False):
    """The keywords of `layout`; for those who pass them on."""

    missing: Iterable[int] | None
    empty: Iterable[int] | None
    unreadable: Iterable[int] | None
    directory: Iterable[int] | None
    dangling: Iterable[int] | None
    loop: Iterable[int] | None
    outside: Iterable[int] | None
    linked: Iterable[int] | None
    fifo: Iterable[int] | None
    socket: Iterable[int] | None
    truncated: Iterable[int] | None
    extended: Iterable[int] | None
    flipped: Iterable[int] | None
    swapped: Iterable[int] | None
    sparse: Iterable[int] | None
    leftover: Iterable[int] | None
    unfinished: Iterable[int] | None


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Layout:
    """One shards directory as a value; make it with `layout`, which is also its repr.

    Attributes:
        states: The state of each shard, in order.
        n_examples: Examples in the whole directory.
        examples_per_shard: Room in each shard.
        layers: The recorded layers.
        content_tokens_per_example: Tokens of an example, not counting the special one.
        cls_token: Whether a special token comes before them.
        d_model: Values of one activation.
        labels: Whether there is a ``labels.bin``.

    Raises:
        TypeError: A count that is no integer.
        ValueError: A count below its least, layers twice or none, examples that need more or fewer
            shards, labels for no examples, one single swapped shard.
    """

    states: tuple[ShardState, ...]
    n_examples: int
    examples_per_shard: int = Defaults.examples_per_shard
    layers: tuple[int, ...] = Defaults.layers
    content_tokens_per_example: int = Defaults.content_tokens_per_example
    cls_token: bool = Defaults.cls_token
    d_model: int = Defaults.d_model
    labels: bool = Defaults.labels

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            self._set(name, integer(name, getattr(self, name), at_least=least))
        self._set("layers", integers("layers", self.layers, what="integers"))
        for name in ("cls_token", "labels"):
            _refuse_other_than_bool(name, getattr(self, name))
        _refuse_layers(self.layers)
        _refuse_other_count_of_shards(self)
        if self.labels and not self.n_examples:
            raise ValueError("labels: expected examples to label, found n_examples=0")
        if len(self.indices(ShardState.SWAPPED)) == 1:
            raise ValueError("swapped: expected none, or two or more, found one")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # before anybody else has it

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._said())
        return f"layout({said})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the call for Hypothesis and IPython too, which would list a dataclass's fields."""
        printer.text(repr(self))

    def _said(self) -> Iterator[tuple[str, object]]:
        """The keywords of `layout` that make this value, without those left at their default."""
        yield "n_shards", self.n_shards
        yield from indices_by_state(self.states, ShardState.OK)
        if self.n_examples != _default_n_examples(self.n_shards, self.examples_per_shard):
            yield "n_examples", self.n_examples
        for name, default in _shape_defaults():
            if (value := getattr(self, name)) != default:
                yield name, value

    @property
    def n_shards(self) -> int:
        """How many shards the manifest lists."""
        return len(self.states)

    @property
    def tokens_per_example(self) -> int:
        """Tokens of an example, with the special one where there is one."""
        return self.content_tokens_per_example + self.cls_token

    @property
    def shard_shape(self) -> tuple[int, int, int, int]:
        """Shape of every shard: (examples, layers, tokens, d_model)."""
        tokens = self.tokens_per_example
        return self.examples_per_shard, len(self.layers), tokens, self.d_model

    @property
    def shard_names(self) -> tuple[str, ...]:
        """File name of each shard, in order."""
        return tuple(map(self.shard_name, range(self.n_shards)))

    @property
    def shard_bytes(self) -> int:
        """Size in bytes of every whole shard."""
        return 4 * math.prod(self.shard_shape)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Name of each file that the manifest promises, in its order: shards, then labels."""
        return (*self.shard_names, *["labels.bin"] * self.labels)

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"acts{index:06}.bin"

    def indices(self, state: ShardState) -> tuple[int, ...]:
        """Return which shards are in this state."""
        return tuple(index for index, found in enumerate(self.states) if found is state)

    def examples_in(self, index: int) -> int:
        """Return how many examples a shard holds."""
        before = index * self.examples_per_shard
        return max(0, min(self.examples_per_shard, self.n_examples - before))


def layout(n_shards: int = 3, **keywords: Unpack[LayoutKeywords]) -> Layout:
    """Return the value that describes a shards directory; nothing is written.

    Each `ShardState` but ``ok`` is a keyword, and takes the indices of the shards in that state;
    all others are whole. The other keywords say how large the directory is.

    Args:
        n_shards: How many shards the manifest lists.
        **keywords:
            ``missing``, ``empty``, ``unreadable``, ``directory``, ``dangling``, ``loop``,
            ``outside``, ``linked``, ``fifo``, ``socket``, ``truncated``, ``extended``, ``flipped``,
            ``swapped``, ``sparse``, ``leftover``, ``unfinished``: indices of shards; see
            `ShardState` for what each means.
            ``n_examples``: Examples in the whole directory. By default every shard is full, but for
            the last, which has room for one more example (unless that would leave it with none).
            ``examples_per_shard``: Room in each shard (4).
            ``layers``: The recorded layers ((6, 11)).
            ``content_tokens_per_example``: Tokens of an example, not counting the special one (3).
            ``cls_token``: Whether a special token comes before them (True).
            ``d_model``: Values of one activation (8).
            ``labels``: Whether there is a ``labels.bin`` (False).

    Raises:
        TypeError: Another keyword, or a count or an index that is no integer.
        ValueError: An index out of range or named twice, one single swapped shard, or a shape that
            no directory can have.

    Example:
        >>> layout(n_shards=4, missing=[1], empty=[2])
        layout(n_shards=4, missing=[1], empty=[2])
    """
    return layout_of("layout", {"n_shards": n_shards, **keywords})


def layout_of(function: str, keywords: Mapping[str, Any], **aliases: ShardState) -> Layout:
    """Return what `layout` returns, for a function that has other names for some states too."""
    names = {state.value: state for state in ShardState if state is not ShardState.OK} | aliases
    known = {"n_shards", *LayoutKeywords.__annotations__, *names}
    refuse_unknown(function, keywords.keys() - known, sorted(known))
    said = dict(keywords)
    n_shards = integer("n_shards", said.pop("n_shards"), at_least=0)
    room = said.setdefault("examples_per_shard", Defaults.examples_per_shard)
    room = integer("examples_per_shard", room, at_least=1)
    if said.get("n_examples") is None:
        said["n_examples"] = _default_n_examples(n_shards, room)
    states = taken_states(said, n_shards, names, ShardState.OK)
    return Layout(states=states, **said)


def _default_n_examples(n_shards: int, examples_per_shard: int) -> int:
    one_fewer = n_shards > 0 and examples_per_shard > 1
    return n_shards * examples_per_shard - one_fewer


def _shape_defaults() -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(Layout):
        if field.default is not dataclasses.MISSING:
            yield field.name, field.default


def _refuse_other_than_bool(name: str, value: object) -> None:
    if type(value) is not bool:
        raise TypeError(f"{name}: expected bool, found {value!r}")


def _refuse_layers(layers: tuple[int, ...]) -> None:
    if not layers or len(set(layers)) != len(layers):
        raise ValueError(f"layers: expected one or more, none twice, found {layers}")


def _refuse_other_count_of_shards(value: Layout) -> None:
    """The writer opens the next shard as soon as one is full: the last one may have no examples."""
    needed = -(-value.n_examples // value.examples_per_shard)
    is_full = value.n_examples % value.examples_per_shard == 0
    if value.n_shards not in {needed, needed + is_full}:
        raise ValueError(
            f"n_examples: {value.n_examples} examples fill {needed} shards of "
            f"{value.examples_per_shard}, found n_shards={value.n_shards}"
        )
