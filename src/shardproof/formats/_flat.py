"""Formats that are nothing but files with a law: no list names them, so what is there is expected.

What names imply is expected too: ``train-00003-of-00042.tar``, or ``.x.crc`` of Hadoop beside x.
"""

import os
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from shardproof._base.names import open_root
from shardproof._base.opening import names_in
from shardproof.errors import ManifestNotFoundError
from shardproof.formats import _hadoop
from shardproof.formats._counted import promised_by_names
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, Probe, PromisedFile, Prove

_COUNTED = re.compile(r"-\d+-of-[\dN]+")
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
    **fields: Any,
) -> Format:
    """Return a format whose shards are the files with one of some endings, each under one law.

    Args:
        name: Its name.
        suffixes: The endings; a number such as ``-00003-of-00042`` may stand before them, or after.
        probe: What looks at a file: a `shardproof.manifest.Probe`; or the module of
            `shardproof.probes` that has it, and ``prove`` where files have checksums in themselves.
        prove: Called with the directory: what reads checksums that its files have?
        choose: Called with the directory and names with these endings: which are of this format?
        fields: Others of `Format`: what it is, what it proves, and what it can't see.
    """

    def listed(names: Sequence[str]) -> list[str]:
        may_be = _hadoop.expected_of(names)
        return [each for each in may_be if _COUNTED.sub("", each).endswith(suffixes)]

    def recognizes(path: str) -> bool:
        return bool(choose(path, listed(names_in(path))[:_MOST_LOOKED_AT]))

    def read_manifest(path: str) -> Manifest:
        os.close(open_root(path))
        here = names_in(path)
        counted = promised_by_names(choose(path, listed(here)))
        if not counted.names:
            problem = f"expected files ({', '.join(f'*{each}' for each in suffixes)}), found none"
            raise ManifestNotFoundError(problem, path=path)
        law: Any = import_module(f"shardproof.probes.{probe}") if isinstance(probe, str) else None
        look: Any = law.probe if law else probe
        inside = prove(path) if prove else getattr(law, "prove", None)
        return Manifest.at(
            path,
            "",
            name,
            [PromisedFile(name=each) for each in counted.names],
            probe=look,
            prove=_hadoop.proof_of(path, here, inside),
            contradictions=lambda: [*counted.contradictions, *_hadoop.uncommitted(here)],
        )

    return Format(
        **{
            "name": name,
            "manifest_file": f"*{suffixes[0]}",
            "suffixes": suffixes,
            "recognizes": recognizes,
            "read_manifest": read_manifest,
            **fields,
            "beside": (*_hadoop.BESIDE, *fields.get("beside", ())),
        }
    )
