"""In which format a split is, as the library datasets decides it: by what most files end with."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["SUFFIX", "format_of", "is_data", "is_for_parquet", "of_parquet"]

SUFFIX = ".parquet"
"""What the files that are read end with."""

_FOR_PARQUET = re.compile(r"\.(parquet|geoparquet|gpq|zip)(\..+)?$")
_PARQUET = ("parquet", "geoparquet", "gpq")
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


def is_data(name: str) -> bool:
    """Whether datasets takes a file for data, in whatever format; others it passes over."""
    return not _ALLOWED.isdisjoint(_suffixes(name))


def _suffixes(name: str) -> list[str]:
    return name.rpartition("/")[2].split(".")[1:]


def is_for_parquet(name: str) -> bool:
    """Whether datasets reads a file of a split that is in parquet; others it passes over."""
    return _FOR_PARQUET.search(name) is not None


def format_of(names: Sequence[str]) -> str | None:
    """Return the suffix that says in which format files are; None where none does.

    Example:
        >>> format_of(["a.parquet", "b.parquet", "b.json"]), format_of(["a.json", "b.parquet"])
        ('parquet', 'parquet')
    """
    counts = Counter(
        (suffix.lower(), name.rpartition("/")[2] in _METADATA)
        for name in names
        for suffix in _suffixes(name)
    )
    known = [(found, n) for found, n in counts.items() if found[0] in _FORMATS]
    return max(known, key=_rank)[0][0] if known else None


def _rank(counted: tuple[tuple[str, bool], int]) -> tuple[bool, int, int, str]:
    (suffix, is_metadata), n = counted
    place = _FAVORITES.index(suffix) if suffix in _FAVORITES else len(_FAVORITES)
    return not is_metadata, n, -place, suffix


def of_parquet(splits: Mapping[str, Sequence[str]]) -> bool:
    """Whether each split is in parquet."""
    return all(format_of(names) in _PARQUET for names in splits.values())
