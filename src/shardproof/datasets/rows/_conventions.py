"""What the library datasets makes of the names of files: which are data, of which split and format.

Without a card, words in names decide on splits, and the suffix of most files on the format.
"""

import re
from collections import Counter
from collections.abc import Sequence

from shardproof._base.messages import quoted
from shardproof.datasets.rows._patterns import Budget, matching
from shardproof.datasets.rows._specs import SPLIT_WORDS

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
    names: Sequence[str], below: str = "", budget: Budget | None = None
) -> dict[str, list[str]]:
    """Return the patterns of each split that the names of files below a directory tell."""
    start = f"{below}/" if below else ""
    if sharded := matching(start + _SHARDED.format("*"), names, budget):
        said = (_SHARDED_SPLIT.match(name.rpartition("/")[2]) for name in sharded)
        splits = sorted({found[1] for found in said if found})
        if wrong := [split for split in splits if not SPLIT_NAME.fullmatch(split)]:
            raise ValueError(f"data/{wrong[0]}-...: no split can be called {quoted(wrong[0])}")
        return {split: [_SHARDED.format(split)] for split in splits}
    for patterns in (_LOGS, _worded(_DIRECTORIES), _worded(_FILES), _ALL):
        with_files = {
            split: list(some)
            for split, some in patterns.items()
            if any(matching(start + pattern, names, budget) for pattern in some)
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
