"""The saev activation format, read and written.

A shards directory of saev holds ``metadata.json``, ``shards.json``, ``acts000000.bin``,
``acts000001.bin``, ... and at times ``labels.bin``. A shard has no header: it is a C-ordered array
of the shape `Metadata.shard_shape`; the last one too, whose rows past its ``n_examples`` are unused
(``docs/src/developers/protocol.md`` of https://github.com/OSU-NLP-Group/saev).
"""

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, overload

import msgspec

from shardproof import _files, _json
from shardproof._arguments import checked
from shardproof._names import quoted
from shardproof.checks import check
from shardproof.errors import ManifestNotFoundError
from shardproof.manifest import Manifest, PromisedFile, refuse_names

__all__ = [
    "LABELS_FILE",
    "METADATA_FILE",
    "SHARDS_FILE",
    "Metadata",
    "Shard",
    "ShardInfo",
    "read_shards",
]

METADATA_FILE = "metadata.json"
SHARDS_FILE = "shards.json"
LABELS_FILE = "labels.bin"

_MAX_COUNT = 2**53  # exact in every JSON reader (RFC 8259, section 6)
_MAX_SHARD_BYTES = 2**63 - 1  # off_t
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MAX_COUNT)]
AnyPath = str | os.PathLike[str]
T = TypeVar("T")


class Metadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a directory's activations are: ``metadata.json``.

    Attributes:
        family: Family of the transformer, such as ``"clip"``.
        ckpt: Its checkpoint.
        layers: The recorded layers, in the order in which they lie in a shard.
        content_tokens_per_example: Tokens of an example, not counting the special one.
        cls_token: Whether one special token was recorded, before the content tokens.
        d_model: Values of one activation.
        n_examples: Examples in the whole directory.
        max_tokens_per_shard: Budget of tokens, over all layers, for one shard.
        data: Base64 of a pickle that describes the dataset. It stays text: nothing here decodes it,
            since unpickling runs what its author wrote.
        dataset: Root of the original dataset on the machine that wrote the shards.
        pixel_agg: How labels of pixels became labels of tokens.
        dtype: How a value is stored.
        protocol: Version of the protocol.

    Raises:
        ValueError: A count below 1, layers twice or none, or not one example fits into a shard.

    Example:
        >>> metadata = Metadata(
        ...     family="clip", ckpt="ViT-B-32/openai", layers=(6, 11), n_examples=10,
        ...     content_tokens_per_example=49, cls_token=True, d_model=768,
        ...     max_tokens_per_shard=400, data="", dataset="/data/images",
        ... )
        >>> metadata.shard_shape, metadata.n_shards
        ((4, 2, 50, 768), 3)
    """

    family: str
    ckpt: str
    layers: tuple[int, ...]
    content_tokens_per_example: Positive
    cls_token: bool
    d_model: Positive
    n_examples: Count
    max_tokens_per_shard: Positive
    data: str
    dataset: str
    pixel_agg: Literal["majority", "prefer-fg"] | None = "majority"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    protocol: Literal["1.0.0", "1.1", "2.1"] = "2.1"

    _POSITIVE: ClassVar[tuple[str, ...]] = (
        "content_tokens_per_example",
        "d_model",
        "max_tokens_per_shard",
    )

    def __post_init__(self) -> None:
        for name in (*self._POSITIVE, "n_examples"):
            _refuse_count(name, getattr(self, name), at_least=int(name in self._POSITIVE))
        for layer in self.layers:
            _refuse_count("layers", layer, at_least=-_MAX_COUNT)
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers: expected one or more, none twice, found {self.layers}")
        if self.examples_per_shard < 1:
            needed = self.tokens_per_example * len(self.layers)
            raise ValueError(
                f"max_tokens_per_shard: expected at least {needed}, the tokens of one example, "
                f"found {self.max_tokens_per_shard}"
            )
        if self.shard_bytes > _MAX_SHARD_BYTES:
            raise ValueError(f"expected shards below 2**63 bytes, found {self.shard_bytes}")

    @property
    def tokens_per_example(self) -> int:
        """Tokens of an example, with the special one where it was recorded."""
        return self.content_tokens_per_example + self.cls_token

    @property
    def examples_per_shard(self) -> int:
        """How many examples every shard has room for."""
        return self.max_tokens_per_shard // (self.tokens_per_example * len(self.layers))

    @property
    def n_shards(self) -> int:
        """How many shards hold all examples."""
        return -(-self.n_examples // self.examples_per_shard)

    @property
    def has_extra_shard(self) -> bool:
        """Whether saev's writer leaves one more shard with no examples in it.

        It opens the next file as soon as one is full, so it does when the last shard is full.
        """
        return self.n_examples % self.examples_per_shard == 0

    @property
    def shard_shape(self) -> tuple[int, int, int, int]:
        """Shape of every shard: (examples, layers, tokens, d_model)."""
        return self.examples_per_shard, len(self.layers), self.tokens_per_example, self.d_model

    @property
    def shard_bytes(self) -> int:
        """Size of every shard file in bytes."""
        examples, layers, tokens, d_model = self.shard_shape
        return examples * layers * tokens * d_model * _ITEM_BYTES[self.dtype]

    @property
    def labels_bytes(self) -> int:
        """Size of ``labels.bin`` in bytes, where there is one: a uint8 for each content token."""
        return self.n_examples * self.content_tokens_per_example

    @property
    def hash(self) -> str:
        """The first 8 hexadecimal digits of the sha256 that names saev's directory.

        Of the compact JSON in the order of the fields above: saev asks orjson for sorted keys, and
        orjson sorts those of dictionaries, not those of a dataclass.
        """
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:8]

    @classmethod
    @checked
    def load(cls, shards_dir: AnyPath) -> "Metadata":
        """Return the metadata of a shards directory.

        Args:
            shards_dir: The directory that holds ``metadata.json``.

        Raises:
            ManifestNotFoundError: There is no such directory or file.
            ManifestError: It is not what the protocol describes; the text names line and field.
        """
        return _read(os.path.realpath(shards_dir), METADATA_FILE, cls)

    @checked
    def dump(self, shards_dir: AnyPath) -> None:
        """Write ``metadata.json`` into a directory that exists: whole, or not at all.

        Args:
            shards_dir: The directory itself. (saev's own ``dump`` takes its parent.)

        Raises:
            OSError: It could not be written.
        """
        _dump(self, shards_dir, METADATA_FILE)


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One entry of ``shards.json``.

    Attributes:
        name: File name, such as ``"acts000000.bin"``.
        n_examples: How many of the file's rows are used, from the first one on.
    """

    # No __post_init__: it would run 100 000 times for entries that were checked as they were
    # decoded. What is wrong in one made by hand is refused by ShardInfo.
    name: str
    n_examples: Count


def _refuse_count(name: str, value: object, *, at_least: int) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}: expected int, found {type(value).__name__}")
    if not at_least <= value <= _MAX_COUNT:
        raise ValueError(f"{name}: expected {at_least} to {_MAX_COUNT}, found {value}")


@dataclasses.dataclass(frozen=True, slots=True)
class ShardInfo:
    """The shards of a directory, in order: ``shards.json``.

    Args:
        shards: The entries.

    Raises:
        TypeError: Something else than a `Shard`, a name that is no text, a count no integer.
        ValueError: A count below 0 or above 2**53.

    Example:
        >>> shard_info = ShardInfo([Shard("acts000000.bin", 4), Shard("acts000001.bin", 2)])
        >>> len(shard_info), shard_info[1].n_examples, [shard.name for shard in shard_info]
        (2, 2, ['acts000000.bin', 'acts000001.bin'])
    """

    shards: Sequence[Shard] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards", tuple(self.shards))
        for shard in self.shards:
            if type(shard) is not Shard:
                raise TypeError(f"shards: expected Shard, found {type(shard).__name__}")
            if type(shard.name) is not str:
                raise TypeError(f"name: expected str, found {type(shard.name).__name__}")
            _refuse_count("n_examples", shard.n_examples, at_least=0)

    def __len__(self) -> int:
        return len(self.shards)

    @overload
    def __getitem__(self, index: int) -> Shard: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Shard]: ...
    def __getitem__(self, index: int | slice) -> Shard | Sequence[Shard]:
        return self.shards[index]

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.shards)

    @classmethod
    @checked
    def load(cls, shards_dir: AnyPath) -> "ShardInfo":
        """Return what ``shards.json`` lists; no shard is looked at.

        Args:
            shards_dir: The directory that holds ``shards.json``.

        Raises:
            ManifestNotFoundError: There is no such directory or file; the text says what is there
                instead and what to do.
            ManifestError: It is not what the protocol describes, or lists a name that could lead
                out of the directory or to two files at once.
        """
        root = os.path.realpath(shards_dir)
        shards = read_shards(root)
        refuse_names([shard.name for shard in shards], os.path.join(root, SHARDS_FILE))
        return cls(shards)

    @checked
    def dump(self, shards_dir: AnyPath) -> None:
        """Write ``shards.json`` into a directory that exists: whole, or not at all.

        Args:
            shards_dir: The directory that holds the shards.

        Raises:
            OSError: It could not be written.
        """
        _dump(self.shards, shards_dir, SHARDS_FILE)

    @checked
    def validate(self, shards_dir: AnyPath) -> None:
        """Do nothing when each listed shard exists, is a regular file, not empty, and opens.

        Args:
            shards_dir: The directory that holds the shards.

        Raises:
            ShardValidationError: Also a `FileNotFoundError`; its text lists every missing, empty,
                unreadable and non-regular file by absolute path, its ``report`` holds them as data.
            ManifestError: There is no such directory, or a listed name is refused.
        """
        root = Path(os.path.realpath(shards_dir))
        files = [PromisedFile(shard.name) for shard in self.shards]
        check(Manifest(root, root / SHARDS_FILE, "saev", files)).raise_for_findings()


def read_shards(root: str) -> list[Shard]:
    """Return the entries of ``shards.json``, with names that nobody has refused yet.

    Args:
        root: Real absolute path of the directory.

    Raises:
        ManifestNotFoundError: There is no such directory or file.
        ManifestError: It is not what the protocol describes.
    """
    return _read(root, SHARDS_FILE, list[Shard])


def _dump(value: Any, shards_dir: AnyPath, name: str) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    _files.sweep_leftovers(shards_dir)
    _files.write_whole(os.path.join(shards_dir, name), text)


def _read(root: str, name: str, kind: type[T]) -> T:
    try:
        return _json.read(root, name, kind)
    except ManifestNotFoundError as error:
        if error.path == root:
            raise
        raise _missing(root, name) from error


def _missing(root: str, name: str) -> ManifestNotFoundError:
    there = _what_is_there(root)
    holds = ", ".join(there) or "no acts*.bin file and no metadata.json"
    advice = _ADVICE[name] if there else "nothing in it looks like saev's: is the path right?"
    problem = f"there is no such file. The directory holds {holds}; {advice}"
    return ManifestNotFoundError(problem, path=os.path.join(root, name))


def _what_is_there(root: str) -> list[str]:
    names = sorted(os.listdir(root))
    acts = [name for name in names if name.startswith("acts") and name.endswith(".bin")]
    counted = [f"{len(acts)} acts*.bin (the first is {quoted(acts[0])})"] if acts else []
    return counted + [name for name in (SHARDS_FILE, METADATA_FILE, LABELS_FILE) if name in names]


_ADVICE = {
    SHARDS_FILE: "saev writes it after each shard, so the directory is half-written, partly purged "
    "or from an older protocol: make the shards again, or restore the file",
    METADATA_FILE: "saev writes it before the first shard, so it was deleted since: restore the "
    "file, or make the shards again",
}
