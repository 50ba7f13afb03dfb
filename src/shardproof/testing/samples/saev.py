"""Shards directories of saev, whole and damaged."""

import array
import base64
import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from shardproof.testing.samples._keywords import expect, integer, integers
from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions, index_of

__all__ = ["FORMAT", "SaevOptions"]

_PERIOD = 2**24  # float32 holds every integer up to here exactly


@dataclasses.dataclass(frozen=True, kw_only=True)
class SaevOptions(SampleOptions):
    """What a shards directory of saev is like: by default 1 KiB a shard.

    Attributes:
        n_examples: Examples in the whole directory. By default every shard is full, but for the
            last, which has room for one more example (unless that would leave it with none).
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

    n_examples: int = None  # type: ignore[assignment] # implied
    examples_per_shard: int = 4
    layers: tuple[int, ...] = (6, 11)
    content_tokens_per_example: int = 3
    cls_token: bool = True
    d_model: int = 8
    labels: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("examples_per_shard", "content_tokens_per_example", "d_model"):
            self.settle(name, integer(name, getattr(self, name), at_least=1))
        given: Any = self.n_examples
        n_examples = self.implied()["n_examples"] if given is None else given
        self.settle("n_examples", integer("n_examples", n_examples, at_least=0))
        self.settle("layers", integers("layers", self.layers, what="integers"))
        for name in ("cls_token", "labels"):
            expect(name, getattr(self, name), bool)
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers: expected one or more, none twice, found {self.layers}")
        # The writer opens the next shard as soon as one is full: the last may have no examples.
        needed = -(-self.n_examples // self.examples_per_shard)
        is_full = self.n_examples % self.examples_per_shard == 0
        if self.n_shards not in {needed, needed + is_full}:
            raise ValueError(
                f"n_examples: {self.n_examples} examples fill {needed} shards of "
                f"{self.examples_per_shard}, found n_shards={self.n_shards}"
            )
        if self.labels and not self.n_examples:
            raise ValueError("labels: expected examples to label, found n_examples=0")

    def implied(self) -> Mapping[str, object]:
        """Return the number of examples that follows from the room in the shards."""
        one_fewer = self.n_shards > 0 and self.examples_per_shard > 1
        return {"n_examples": self.n_shards * self.examples_per_shard - one_fewer}

    @property
    def tokens_per_example(self) -> int:
        """Tokens of an example, with the special one where there is one."""
        return self.content_tokens_per_example + self.cls_token

    @property
    def shard_shape(self) -> tuple[int, int, int, int]:
        """Shape of every shard: (examples, layers, tokens, d_model)."""
        return self.examples_per_shard, len(self.layers), self.tokens_per_example, self.d_model

    @property
    def shard_bytes(self) -> int:
        """Size in bytes of every whole shard."""
        return 4 * math.prod(self.shard_shape)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Name of each file that the manifest lists, in its order: shards, then labels."""
        return (*self.shard_names, *["labels.bin"] * self.labels)

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"acts{index:06}.bin"

    def examples_in(self, index: int) -> int:
        """Return how many examples a shard holds."""
        before = index * self.examples_per_shard
        return max(0, min(self.examples_per_shard, self.n_examples - before))


def _folder(layout: Layout) -> str:
    """Return the path that saev gives, named by 8 hex digits of a digest of the metadata."""
    compact = json.dumps(_metadata(layout), separators=(",", ":"), ensure_ascii=False)
    return f"saev/shards/{hashlib.sha256(compact.encode()).hexdigest()[:8]}"


def _read_bytes(layout: Layout, name: str) -> bytes:
    options: SaevOptions = layout.options
    if name == "metadata.json":
        return _pretty(_metadata(layout))
    if name == "shards.json":
        names = enumerate(options.shard_names)
        return _pretty([{"name": each, "n_examples": options.examples_in(i)} for i, each in names])
    if name == "labels.bin" and options.labels:
        n_labels = options.n_examples * options.content_tokens_per_example
        return bytes(place % 256 for place in range(n_labels))
    index = index_of(layout, name)
    examples, layers, tokens, d_model = options.shard_shape
    values_per_example = layers * tokens * d_model
    # Each value says where it belongs: they count up, in the order (example, layer, token, value).
    first = index * examples * values_per_example + options.seed
    end = first + options.examples_in(index) * values_per_example
    numbers = array.array("f", (1 + place % _PERIOD for place in range(first, end)))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes().ljust(options.shard_bytes, b"\0")


def _metadata(layout: Layout) -> dict[str, Any]:
    options: SaevOptions = layout.options
    return {  # in the order of saev's fields, on which the hash depends
        "family": "clip",
        "ckpt": "ViT-B-32/openai",
        "layers": list(options.layers),
        "content_tokens_per_example": options.content_tokens_per_example,
        "cls_token": options.cls_token,
        "d_model": options.d_model,
        "n_examples": options.n_examples,
        "max_tokens_per_shard": (
            options.examples_per_shard * len(options.layers) * options.tokens_per_example
        ),
        # saev puts a pickle here. To load this one is an error, and runs nothing.
        "data": base64.b64encode(b"not a pickle").decode(),
        "dataset": "/data/images",
        "pixel_agg": "majority",
        "dtype": "float32",
        "protocol": "2.1",
    }


def _pretty(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


FORMAT = SampleFormat(
    name="saev",
    options=SaevOptions,
    manifest_names=lambda _: ("metadata.json", "shards.json"),
    read_bytes=_read_bytes,
    folder=_folder,
)
