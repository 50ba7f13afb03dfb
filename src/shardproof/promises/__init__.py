"""What is expected of a directory: by its own manifest and seal, a list, a source, another one."""

import contextlib
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shardproof import formats
from shardproof._base.addresses import path_of
from shardproof._base.messages import shown
from shardproof._base.opening import is_directory, is_there, real_path
from shardproof.errors import ManifestError
from shardproof.formats import Format
from shardproof.manifest import Manifest
from shardproof.report import Level

__all__ = ["Promise", "promise_of"]

_ON_DISK = re.compile(r"([\w+.-]+::)*(file|local)://", re.ASCII | re.IGNORECASE)


class Promise(NamedTuple):
    """What is expected of a directory."""

    manifest: Manifest
    beside: tuple[str, ...]  # patterns of what may lie beside the expected files
    name_at_source: Callable[[str], str] = str  # what a file is called where it comes from


def promise_of(
    path: str,
    *,
    form: Format | None = None,
    against: str | os.PathLike[str] | None = None,
    level: Level = "present",
) -> Promise:
    """Return what a located directory promises, or what ``against`` does: read, if ``valid``."""
    key = None if against is None else formats.key_at(os.fspath(against))
    if against is None or key is not None:
        if key is not None and is_there(os.path.join(path, "model.sig")):
            form = form or formats.get("model-signing")  # whatever else recognizes it
        form = form or formats.detect(path)
        read = functools.partial(formats.read_manifest, lists=level == "valid")
        if key is not None:
            read = functools.partial(formats.read_signed, key=key)
        return Promise(read(form, path), formats.parts_of(form, path), form.name_at_source)
    address = os.fspath(against)
    _refuse_itself(path, address)
    # What fetches takes longer to import than all else here.
    from shardproof.probes import by_name  # noqa: PLC0415
    from shardproof.promises._elsewhere import expected_at, shown_address  # noqa: PLC0415

    with contextlib.suppress(ManifestError):  # of no format, or of two
        form = form or formats.detect(path)
    shown = shown_address(address)
    manifest = Manifest.without_refused(
        Manifest,
        root=path_of(path),
        path=shown if "://" in shown else Path(os.path.abspath(address)),
        format=shown,
        **expected_at(address, path, reads=level == "valid"),
        probe=by_name.probe,
        stores=[real_path(os.path.join(path, form.store))] if form and form.store else (),
    )
    return Promise(manifest, formats.parts_of(form, path) if form else ())


def _refuse_itself(path: str, address: str) -> None:
    """Raise where a directory is to be compared with itself, by whatever way that leads there."""
    scheme = _ON_DISK.match(address)
    other = address[scheme.end() :] if scheme else "" if "://" in address else address
    is_there_too = other and "://" not in path and is_directory(path) and is_directory(other)
    is_same = is_there_too and os.path.samestat(os.stat(path), os.stat(other))
    if is_same or address.rstrip("/") == path:
        problem = f"expected a manifest from elsewhere, found the directory itself: '{shown(path)}'"
        raise ValueError(f"against: {problem}")
