"""What stands in for the built-in `open`."""

import functools
import io
import os
import warnings
from collections.abc import Callable
from typing import Any

from shardproof.testing.faults.file_system._calls import watched
from shardproof.testing.faults.file_system._classes import FileIO

__all__ = ["opening"]

_Layers = tuple[str | None, str | None, str | None]
"""Encoding, errors, newline."""

_fstat = os.fstat


def opening(real: Callable[..., Any]) -> Callable[..., Any]:
    """Make the function; below a root it puts the real buffers and decoders on a `FileIO`."""

    @functools.wraps(real)
    def open(  # noqa: A001, PLR0917 - this is what it is
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        layers: _Layers = (encoding, errors, newline)
        if not watched(file) or not _is_valid(mode, buffering, layers):
            return real(file, mode, buffering, *layers, closefd, opener)
        if "b" in mode and buffering == 1:
            warnings.warn("buffering=1 means lines: not for bytes", RuntimeWarning, stacklevel=2)
        if "b" not in mode:
            layers = (io.text_encoding(encoding), errors, newline)
        path = os.fspath(file) if isinstance(file, os.PathLike) else file
        raw = FileIO(path, mode.translate(_RAW_MODE), closefd, opener)
        try:
            return _layered(raw, mode, buffering, layers)
        except BaseException:
            raw.close()
            raise

    return open


_RAW_MODE = str.maketrans("", "", "bt")


def _is_valid(mode: object, buffering: object, layers: _Layers) -> bool:
    """Whether the real one would take these arguments; what it refuses, it shall refuse itself."""
    if not isinstance(mode, str) or not isinstance(buffering, int):
        return False
    letters = set(mode)
    if len(letters) != len(mode) or not letters <= set("rwxa+bt"):
        return False
    if len(letters & set("rwxa")) != 1 or {"b", "t"} <= letters:
        return False
    return all(layer is None for layer in layers) if "b" in mode else buffering != 0


def _layered(raw: FileIO, mode: str, buffering: int, layers: _Layers) -> Any:
    if buffering == 0:
        return raw
    by_line = buffering == 1 or (buffering < 0 and raw.isatty())
    size = buffering if buffering > 1 else _fstat(raw.fileno()).st_blksize
    buffered = _buffer_class(mode)(raw, size)
    if "b" in mode:
        return buffered
    encoding, errors, newline = layers
    text = io.TextIOWrapper(buffered, encoding, errors, newline, by_line)
    text.mode = mode  # type: ignore[misc] # read-only for type checkers; the real open sets it too
    return text


def _buffer_class(mode: str) -> Callable[..., Any]:
    if "+" in mode:
        return io.BufferedRandom
    return io.BufferedReader if "r" in mode else io.BufferedWriter
