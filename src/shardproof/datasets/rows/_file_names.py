"""What names of files mean to the library datasets: by patterns, and by the words in them."""

import bisect
import fnmatch
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from shardproof._base.messages import quoted
from shardproof._base.names import MAX_PATH_BYTES
from shardproof._base.opening import MAX_NAME_BYTES
from shardproof.datasets.rows._specs import SPLIT_WORDS

_MAGIC = re.compile(r"[*?\[]")
_WILD = re.compile(r"\[[^\]]*\]|[*?]")
_MOST_COMPARISONS = 150_000_000  # of a part of a name with one of a pattern: some minutes
_NEVER = re.compile(r"(?!)").match  # fits no part
_NO_DATA = {
    "README.md",
    "config.json",
    "dataset_dict.json",
    "dataset_info.json",
    "dataset_infos.json",
    "dummy_data.zip",
}


def has_magic(pattern: str) -> bool:
    """Whether a text is a pattern, and not the name of one file."""
    return _MAGIC.search(pattern) is not None


class Budget:
    """How much may be compared with the patterns of one card, which comes from outside."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARISONS

    def spend(self, effort: int, name: str) -> None:
        """Take off what a name costs; a ValueError where all is spent."""
        self._left -= effort * (name.count("/") + 1 + len(name) // MAX_NAME_BYTES)
        if self._left < 0:
            raise ValueError("the card has too many patterns for so many files")


def meant(pattern: str, names: Sequence[str], budget: Budget | None = None) -> Iterator[str]:
    """Yield which of all files, sorted, a pattern means; a ValueError says why it can't."""
    parts = pattern.split("/")
    _refuse_parts(pattern, parts)
    ignored = _NO_DATA - {parts[-1]}
    fits, hidden, has = _matcher(pattern), _n_hidden(parts), ""
    if "[]" not in pattern and "[!]" not in pattern:  # where a set ends is less plain there
        pieces = [piece.strip("/") for piece in _WILD.split(pattern)]
        has = max((piece for piece in pieces if "]" not in piece), key=len, default="")
    start, behind = _MAGIC.split(pattern)[0], pattern.split("**")[1:] or [""]
    # How often a part of a name is compared: those behind a ``**`` take turns.
    effort = max(parts.strip("/").count("/") + 1 for parts in behind)
    for name in map(names.__getitem__, range(bisect.bisect_left(names, start), len(names))):
        if not name.startswith(start):
            return
        if budget is not None:
            budget.spend(effort, name)
        if (
            has in name  # a text of every name that is meant: most others are out at once
            and fits(found := name.split("/"))
            and found[-1] not in ignored
            and _n_hidden(found) == hidden
        ):
            yield name


def _refuse_parts(pattern: str, parts: Sequence[str]) -> None:
    problem = None
    if len(pattern) > MAX_PATH_BYTES:
        problem = f"it is over {MAX_PATH_BYTES} characters"
    elif any(len(_WILD.sub("?", part)) > MAX_NAME_BYTES for part in parts):
        problem = f"a part of it is over {MAX_NAME_BYTES} characters"
    elif "://" in pattern or "::" in pattern:
        problem = "it is an address, and not a path in the repository"
    elif not {"", ".", ".."}.isdisjoint(parts):
        problem = "it has an empty, '.' or '..' part"
    elif any("**" in part and part != "**" for part in parts):
        problem = "'**' can only be a whole part of a path"
    if problem:
        raise ValueError(f"{quoted(pattern)}: {problem}")


def _n_hidden(parts: Sequence[str]) -> tuple[int, int]:
    """Return how many parts begin with a dot, and how many directories with ``__``."""
    dotted = sum(part.startswith(".") for part in parts)
    return dotted, sum(part.startswith("__") for part in parts[:-1])


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> Callable[[Sequence[str]], bool]:
    """Return a function that says whether the parts of a name fit a pattern."""
    # Part by part: one regular expression for all of it, from outside, could take for ever.
    parts = pattern.split("/")
    parts += ["*"] if parts[-1] == "**" else []  # at the end, it means files and no directories
    fits: list[Callable[[str], object] | None] = [None] * len(parts)  # None for a "**"
    for n, part in enumerate(parts):
        if part != "**":
            is_one = not has_magic(part)
            fits[n] = part.__eq__ if is_one else re.compile(fnmatch.translate(part)).match

    def is_meant(name: Sequence[str]) -> bool:
        at, wanted, after, begin = 0, 0, -1, 0
        while at < len(name):
            fit = fits[wanted] if wanted < len(fits) else _NEVER
            if fit is None:
                wanted, after, begin = wanted + 1, wanted + 1, at
            elif fit(name[at]):
                at, wanted = at + 1, wanted + 1
            elif after >= 0:
                begin += 1
                at, wanted = begin, after
            else:
                return False
        return all(fit is None for fit in fits[wanted:])

    return is_meant


SPLIT_NAME = re.compile(r"\w+(\.\w+)*")
SUFFIX = ".parquet"  # of the files that are read
PARQUET = ("parquet", "geoparquet", "gpq")  # what `format_of` returns for them

_FOR_PARQUET = re.compile(r"\.(parquet|geoparquet|gpq|zip)(\..+)?$")
_FAVORITES = ("parquet", "lance", "vortex", "arrow", "jsonl", "json", "csv")
_METADATA = {
    "instruction.md",
    "latest_version_hint.json",
    "metadata.csv",
    "metadata.jsonl",
    "metadata.parquet",
    "task.toml",
}

# Images, sound, films, meshes, documents, molecules: in lower case or in upper case.
_MEDIA = """
3g2 3gp aiff apng asf au avi avr blp bmp bufr bw caf cur dcx dds dib emf ent eps f4v fit fits flac
flc fli flv ftc ftu gbr gif glb gltf grib htk icb icns ico iim im ircam j2c j2k jfif jp2 jpc jpe
jpeg jpf jpg jpx m4v mat4 mat5 mkv mov mp3 mp4 mpc2k mpeg mpg msp mxf nii nist nut ogg ogm opus paf
pbm pcd pcx pdb pdf pgm ply png pnm ppm ps psd pvf pxr ras raw rf64 rgb rgba sd2 sds sgi stl svx tga
tif tiff vda voc vst w64 wav wavex webm webp wma wmf wmv wve xbm xi xpm
"""
_OTHERS = """
afa arrow cif conll conllu csv eval fa faa fasta fastq ffn fna fq frn gb gbk genbank geoparquet gpq
h5 hdf5 json jsonl lance md mmcif ndjson parquet tar toml tsfile tsv txt vortex xml zip
"""
_FORMATS = {*_MEDIA.split(), *_OTHERS.split()}
_ALLOWED = _FORMATS | {*_MEDIA.upper().split(), "idx", "manifest", "txn"}

_FIVE = "[0-9]" * 5
_SHARDED = f"data/{{}}-{_FIVE}-of-{_FIVE}*.*"
_SHARDED_SPLIT = re.compile(r"(.+)-[0-9]{5}-of-[0-9]{4}")
_BETWEEN = "[-._ 0-9]"
_DIRECTORIES = ("**/{0}/**", "**/{0}{1}*/**", "**/*{1}{0}/**", "**/*{1}{0}{1}*/**")
_FILES = ("**/{0}{1}*", "**/*{1}{0}{1}*")
_LOGS = {"logs": ["**/*.eval"]}
_ALL = {"train": ["**"]}


def default_patterns(
    names: Sequence[str], below: str, budget: Budget | None
) -> dict[str, list[str]]:
    """Return the patterns of each split that the names of files below a directory tell."""
    start = f"{below}/" if below else ""
    if sharded := [*meant(start + _SHARDED.format("*"), names, budget)]:
        said = (_SHARDED_SPLIT.match(name.rpartition("/")[2]) for name in sharded)
        splits = sorted({found[1] for found in said if found})
        if wrong := [split for split in splits if not SPLIT_NAME.fullmatch(split)]:
            raise ValueError(f"data/{wrong[0]}-...: no split can be called {quoted(wrong[0])}")
        return {split: [_SHARDED.format(split)] for split in splits}
    for patterns in (_LOGS, _worded(_DIRECTORIES), _worded(_FILES), _ALL):
        with_files = {
            split: list(some)
            for split, some in patterns.items()
            if any([*meant(start + pattern, names, budget)] for pattern in some)
        }
        if with_files:
            return with_files
    return {}


def _worded(shapes: Sequence[str]) -> dict[str, list[str]]:
    patterns: dict[str, list[str]] = {}
    for word, split in SPLIT_WORDS.items():
        patterns.setdefault(split, []).extend(shape.format(word, _BETWEEN) for shape in shapes)
    return patterns


def is_data(name: str) -> bool:
    """Whether datasets takes a file for data, in whatever format; others it passes over."""
    return not _ALLOWED.isdisjoint(name.rpartition("/")[2].split(".")[1:])


def is_for_parquet(name: str) -> bool:
    """Whether datasets reads a file of a split that is in parquet; others it passes over."""
    return _FOR_PARQUET.search(name) is not None


def format_of(names: Sequence[str]) -> str | None:
    """Return the suffix that says in which format files are; None where none does."""
    bare = [name.rpartition("/")[2] for name in names]
    counts = Counter(
        (suffix.lower(), name in _METADATA) for name in bare for suffix in name.split(".")[1:]
    )
    ranked = []
    for (suffix, is_metadata), n in counts.items():
        if suffix in _FORMATS:
            place = _FAVORITES.index(suffix) if suffix in _FAVORITES else len(_FAVORITES)
            ranked.append((not is_metadata, n, -place, suffix))
    return max(ranked)[-1] if ranked else None
