"""Formats that are files with a law and no list of them: what is there is expected."""

import os
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from shardproof._base import files
from shardproof._base.names import open_root
from shardproof._base.opening import is_never_a_shard, names_in
from shardproof.errors import ManifestNotFoundError
from shardproof.formats import _hadoop
from shardproof.formats._counted import CountedSet, promised_by_names
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, Probe, PromisedFile, Prove

_MOST_LOOKED_AT = 16

Choose = Callable[[str, Sequence[str]], Sequence[str]]
"""Called with a directory and the names in it that may be shards: which are?"""


def flat(
    name: str,
    suffixes: tuple[str, ...],
    probe: Probe | str,
    *,
    prove: Callable[[str], Prove] | None = None,
    choose: Choose = lambda _, names: names,
    job_names: re.Pattern[str] | None = None,
    **fields: Any,
) -> Format:
    """Return a format whose shards are the files with one of some endings, each under one law.

    Args:
        name: Its name.
        suffixes: The endings.
        probe: What looks at a file: a `shardproof.manifest.Probe`; or the module of
            `shardproof.probes` that has it, and ``prove`` where files have checksums in themselves.
        prove: Called with the directory: what reads checksums that its files have?
        choose: Called with the directory and names with these endings: which are of this format?
        job_names: What names look like, in place of ``suffixes`` and ``choose``, where distributed
            jobs write such files: ``-00003-of-00042`` in one, or ``.x.crc`` beside, implies others.
        fields: Others of `Format`: what it is, what it proves, and what it can't see.
    """

    def expected(path: str, most: int | None = None) -> CountedSet:
        here = names_in(path)
        if job_names is None:
            names = [
                each for each in here if each.endswith(suffixes) and not is_never_a_shard(each)
            ]
            return CountedSet(sorted(choose(path, names[:most])), ())
        names = [each for each in _hadoop.expected_of(here) if job_names.fullmatch(each)]
        counted = promised_by_names(each for each in names if not files.is_aside(each))
        return CountedSet(counted.names, [*counted.contradictions, *_hadoop.uncommitted(here)])

    def recognizes(path: str) -> bool:
        return bool(expected(path, _MOST_LOOKED_AT).names)

    def read_manifest(path: str) -> Manifest:
        os.close(open_root(path))
        found = expected(path)
        if not found.names:
            problem = f"expected files ({', '.join(f'*{each}' for each in suffixes)}), found none"
            raise ManifestNotFoundError(problem, path=path)
        law: Any = import_module(f"shardproof.probes.{probe}") if isinstance(probe, str) else None
        look: Any = law.probe if law else probe
        inside = prove(path) if prove else getattr(law, "prove", None)
        return Manifest.at(
            path,
            "",
            name,
            [PromisedFile(name=each) for each in found.names],
            probe=look,
            prove=_hadoop.HadoopProof(path, inside) if job_names else inside,
            contradictions=lambda: found.contradictions,
        )

    beside = _hadoop.BESIDE if job_names else tuple(f"*{each}" for each in suffixes[1:])
    return Format(
        **{
            "name": name,
            "manifest_file": f"*{suffixes[0]}",
            "suffixes": suffixes,
            "recognizes": recognizes,
            "read_manifest": read_manifest,
            **fields,
            "beside": (*beside, *fields.get("beside", ())),
        }
    )
