"""One value that describes a shards directory of saev, and the one writer that makes it.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import array
import base64
import dataclasses
import enum
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

__all__ = ["Defaults", "Layout", "Shape", "ShardState", "layout", "write_layout"]

_PERIOD = 2**24  # float32 holds every integer up to here exactly


class ShardState(enum.StrEnum):
    """What became of one shard."""

    OK = "ok"
    MISSING = "missing"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    DIRECTORY = "directory"


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
            shards, labels for no examples.
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
        for name in ("examples_per_shard", "content_tokens_per_example", "d_model"):
            _refuse_count(name, getattr(self, name), at_least=1)
        _refuse_count("n_examples", self.n_examples, at_least=0)
        for name in ("cls_token", "labels"):
            _refuse_other_than_bool(name, getattr(self, name))
        _refuse_layers(self.layers)
        _refuse_other_count_of_shards(self)
        if self.labels and not self.n_examples:
            raise ValueError("labels: expected examples to label, found n_examples=0")

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._said())
        return f"layout({said})"

    def _said(self) -> Iterator[tuple[str, object]]:
        """The keywords of `layout` that make this value, without those left at their default."""
        yield "n_shards", self.n_shards
        for state in ShardState:
            if state is not ShardState.OK and (indices := self.indices(state)):
                yield state.value, list(indices)
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
        return tuple(f"acts{index:06}.bin" for index in range(self.n_shards))

    def indices(self, state: ShardState) -> tuple[int, ...]:
        """Return which shards are in this state."""
        return tuple(index for index, found in enumerate(self.states) if found is state)

    def examples_in(self, index: int) -> int:
        """Return how many examples a shard holds."""
        before = index * self.examples_per_shard
        return max(0, min(self.examples_per_shard, self.n_examples - before))


def layout(
    n_shards: int = 3,
    *,
    missing: Iterable[int] = (),
    empty: Iterable[int] = (),
    unreadable: Iterable[int] = (),
    directory: Iterable[int] = (),
    n_examples: int | None = None,
    examples_per_shard: int = Defaults.examples_per_shard,
    layers: Sequence[int] = Defaults.layers,
    content_tokens_per_example: int = Defaults.content_tokens_per_example,
    cls_token: bool = Defaults.cls_token,
    d_model: int = Defaults.d_model,
    labels: bool = Defaults.labels,
) -> Layout:
    """Return the value that describes a shards directory; nothing is written.

    Args:
        n_shards: How many shards the manifest lists.
        missing: Indices of shards that are listed and not there.
        empty: Indices of shards of 0 bytes.
        unreadable: Indices of shards that nobody may read (``chmod 0``).
        directory: Indices of shards in whose place there is a directory.
        n_examples: Examples in the whole directory. By default every shard is full, but for the
            last, which has room for one more example (unless that would leave it with none).
        examples_per_shard: Room in each shard.
        layers: The recorded layers.
        content_tokens_per_example: Tokens of an example, not counting the special one.
        cls_token: Whether a special token comes before them.
        d_model: Values of one activation.
        labels: Whether there is a ``labels.bin``.

    Raises:
        TypeError: A count or an index that is no integer.
        ValueError: An index out of range or named twice, or a shape that no directory can have.

    Example:
        >>> layout(n_shards=4, missing=[1], empty=[2])
        layout(n_shards=4, missing=[1], empty=[2])
    """
    _refuse_count("n_shards", n_shards, at_least=0)
    _refuse_count("examples_per_shard", examples_per_shard, at_least=1)
    named = {
        ShardState.MISSING: missing,
        ShardState.EMPTY: empty,
        ShardState.UNREADABLE: unreadable,
        ShardState.DIRECTORY: directory,
    }
    if n_examples is None:
        n_examples = _default_n_examples(n_shards, examples_per_shard)
    return Layout(
        states=_states(n_shards, named),
        n_examples=n_examples,
        examples_per_shard=examples_per_shard,
        layers=tuple(layers),
        content_tokens_per_example=content_tokens_per_example,
        cls_token=cls_token,
        d_model=d_model,
        labels=labels,
    )


def _default_n_examples(n_shards: int, examples_per_shard: int) -> int:
    one_fewer = n_shards > 0 and examples_per_shard > 1
    return n_shards * examples_per_shard - one_fewer


def _shape_defaults() -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(Layout):
        if field.default is not dataclasses.MISSING:
            yield field.name, field.default


def _states(n_shards: int, named: dict[ShardState, Iterable[int]]) -> tuple[ShardState, ...]:
    states: dict[int, ShardState] = {}
    for state, indices in named.items():
        for index in indices:
            _refuse_index(state, index, n_shards)
            if index in states:
                raise ValueError(f"{state}: shard {index} is already named under {states[index]}")
            states[index] = state
    return tuple(states.get(index, ShardState.OK) for index in range(n_shards))


def _refuse_index(state: ShardState, index: object, n_shards: int) -> None:
    if type(index) is not int:
        raise TypeError(f"{state}: expected indices of type int, found {index!r}")
    if not 0 <= index < n_shards:
        raise ValueError(f"{state}: expected indices from 0 below {n_shards}, found {index}")


def _refuse_count(name: str, value: object, *, at_least: int) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}: expected int, found {value!r}")
    if value < at_least:
        raise ValueError(f"{name}: expected {at_least} or more, found {value}")


def _refuse_other_than_bool(name: str, value: object) -> None:
    if type(value) is not bool:
        raise TypeError(f"{name}: expected bool, found {value!r}")


def _refuse_layers(layers: tuple[int, ...]) -> None:
    if any(type(layer) is not int for layer in layers):
        raise TypeError(f"layers: expected integers, found {layers}")
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


def write_layout(value: Layout, base: str | os.PathLike[str]) -> Path:
    """Write a shards directory that saev's own reader accepts, and return its path.

    Each value of a shard says where it belongs: the values of all examples, in the order (example,
    layer, token, dimension), count up from 1, and from 1 again after 2**24. Rows without an example
    are zero. A label is the place of its content token, modulo 256.

    Args:
        value: What to write.
        base: The directory below which ``saev/shards/<hash>`` is made; made itself if need be.

    Returns:
        ``<base>/saev/shards/<hash>``, absolute.

    Raises:
        FileExistsError: A directory of this shape is there already.
        OSError: It could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     path = write_layout(layout(n_shards=3), base)
        ...     path.parts[-3:-1], len(list(path.glob("acts*.bin")))
        (('saev', 'shards'), 3)
    """
    metadata = _metadata(value)
    root = Path(os.path.abspath(base), "saev", "shards", _hash(metadata))
    root.mkdir(parents=True)
    _write_json(root / "metadata.json", metadata)
    _write_json(root / "shards.json", _entries(value))
    for index, (name, state) in enumerate(zip(value.shard_names, value.states, strict=True)):
        _WRITERS[state](root / name, value, index)
    if value.labels:
        n_labels = value.n_examples * value.content_tokens_per_example
        (root / "labels.bin").write_bytes(bytes(place % 256 for place in range(n_labels)))
    return root


def _metadata(value: Layout) -> dict[str, Any]:
    """Return saev's fields in saev's order, on which the hash depends."""
    return {
        "family": "clip",
        "ckpt": "ViT-B-32/openai",
        "layers": list(value.layers),
        "content_tokens_per_example": value.content_tokens_per_example,
        "cls_token": value.cls_token,
        "d_model": value.d_model,
        "n_examples": value.n_examples,
        "max_tokens_per_shard": (
            value.examples_per_shard * len(value.layers) * value.tokens_per_example
        ),
        # saev puts a pickle here. Whoever loads this one gets an error and no surprise.
        "data": base64.b64encode(b"not a pickle").decode(),
        "dataset": "/data/images",
        "pixel_agg": "majority",
        "dtype": "float32",
        "protocol": "2.1",
    }


def _hash(metadata: dict[str, Any]) -> str:
    """The name that saev gives: a digest of the metadata as compact JSON.

    saev asks orjson for sorted keys, which orjson does not do for a dataclass: the fields stay in
    the order in which saev declares them.
    """
    compact = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(compact.encode()).hexdigest()[:8]


def _entries(value: Layout) -> list[dict[str, Any]]:
    return [
        {"name": name, "n_examples": value.examples_in(index)}
        for index, name in enumerate(value.shard_names)
    ]


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")


def _write_ok(path: Path, value: Layout, index: int) -> None:
    examples, layers, tokens, d_model = value.shard_shape
    n_used = value.examples_in(index) * layers * tokens * d_model
    first = index * examples * layers * tokens * d_model
    numbers = array.array("f", (1 + place % _PERIOD for place in range(first, first + n_used)))
    if sys.byteorder == "big":
        numbers.byteswap()
    size = 4 * examples * layers * tokens * d_model
    path.write_bytes(numbers.tobytes().ljust(size, b"\0"))


def _write_missing(_path: Path, _value: Layout, _index: int) -> None:
    pass


def _write_empty(path: Path, _value: Layout, _index: int) -> None:
    path.touch()


def _write_unreadable(path: Path, value: Layout, index: int) -> None:
    _write_ok(path, value, index)
    path.chmod(0)


def _write_directory(path: Path, _value: Layout, _index: int) -> None:
    path.mkdir()


_WRITERS: dict[ShardState, Callable[[Path, Layout, int], None]] = {
    ShardState.OK: _write_ok,
    ShardState.MISSING: _write_missing,
    ShardState.EMPTY: _write_empty,
    ShardState.UNREADABLE: _write_unreadable,
    ShardState.DIRECTORY: _write_directory,
}
