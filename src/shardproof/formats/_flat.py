"""Formats that are files with a law and no list of them: what is there is expected."""

import functools
import itertools
import os
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from shardproof._base.names import open_root
from shardproof._base.opening import is_never_a_shard, names_in
from shardproof.errors import ManifestNotFoundError
from shardproof.formats import _jobs
from shardproof.formats._format import Format
from shardproof.manifest import ExpectedFile, Manifest, Probe, Prove

_MOST_LOOKED_AT = 16


def flat(
    name: str,
    suffixes: tuple[str, ...],
    probe: Probe | str,
    *,
    prove: Callable[[str], Prove] | None = None,
    choose: Callable[[str, Sequence[str]], Sequence[str]] = lambda _, names: names,
    job_names: re.Pattern[str] | None = None,
    first: int = 0,
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
        job_names: What names look like, in place of ``suffixes``, where distributed
            jobs write such files: ``-00003-of-00042`` in one, or ``.x.crc`` beside, implies others.
        first: The first number of those that names imply, if neither end of them is there.
        fields: Others of `Format`: what it is, what it proves, and what it can't see.
    """

    def expected(path: str, most: int | None = None) -> _jobs.CountedSet:
        here = names_in(path)
        if job_names is not None:
            from shardproof._base.files import is_aside  # noqa: PLC0415 - writes; few ask it

            found = filter(job_names.fullmatch, _jobs.expected_of(here))
            kept = itertools.filterfalse(is_aside, found)
            counted = _jobs.expected_by_names(path, kept, first=first)
            odd = [*counted.contradictions, *_jobs.uncommitted(here)]
            return _jobs.CountedSet(choose(path, counted.names), odd)
        names = [each for each in here if each.endswith(suffixes) and not is_never_a_shard(each)]
        return _jobs.CountedSet(sorted(choose(path, names[:most])), ())

    def read_manifest(path: str) -> Manifest:
        os.close(open_root(path))
        names, contradictions = expected(path)
        if not names:
            problem = f"expected files ({', '.join(f'*{each}' for each in suffixes)}), found none"
            raise ManifestNotFoundError(problem, path=path)
        law: Any = import_module(f"shardproof.probes.{probe}") if isinstance(probe, str) else None
        inside = prove(path) if prove else getattr(law, "prove", None)
        return Manifest.at(
            path,
            "",
            name,
            [ExpectedFile(name=each) for each in names],
            probe=law.probe if law else probe,
            prove=functools.partial(_jobs.prove, path, inside) if job_names else inside,
            contradictions=lambda: contradictions,
        )

    defaults: dict[str, Any] = {
        "manifest_file": f"*{suffixes[0]}",
        "recognizes": lambda path: bool(expected(path, _MOST_LOOKED_AT).names),
        "beside": tuple(f"*{each}" for each in suffixes[1:]),
    }
    return Format(name=name, suffixes=suffixes, read_manifest=read_manifest, **defaults | fields)
