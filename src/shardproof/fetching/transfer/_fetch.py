"""Fetch one file, as users ask for it: `fetch` into a directory, `fetch_file` to a path."""

import contextlib
import os
from collections.abc import Callable

from shardproof._base.arguments import checked
from shardproof._base.messages import quoted
from shardproof._base.names import refusals
from shardproof._base.opening import refuse_empty
from shardproof._base.progress import bar
from shardproof._base.threads import Stop
from shardproof._base.work import apart, to_waiter
from shardproof.fetching.sources._open import open_source, split_name
from shardproof.fetching.sources._source import Cancellation, RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._fetch_to import FetchResult, fetch_to
from shardproof.fetching.transfer._file_fetch import OnBytes
from shardproof.fetching.transfer._requests import import_for

__all__ = ["fetch", "fetch_file"]


@checked
def fetch(
    source: Source | str,
    to: str | os.PathLike[str],
    *,
    name: str | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: bool | Callable[[int, int], object] = False,
    cancellation: Cancellation | None = None,
) -> FetchResult:
    """Fetch one file into a directory: under its name there are the right bytes, or nothing.

    When a connection breaks, the next attempt goes on from there, and so does the next fetch, in
    this process or another one; see `fetch_file`. Size and digest are compared before the name
    exists.

    Args:
        source: The address of the file, as in the shell: ``https://``, ``hf://``, ``s3://``,
            ``file:///``, ...; or the address of a folder, or a `Source`, and ``name``.
        to: The directory that it is put in; it is made if need be.
        name: What the file is called below ``source``, and below ``to``. None if the address ends
            with it.
        digest: ``"sha256:<hex>"`` or another that `shardproof` can prove; goes before what the
            source states.
        limits: How long and how often to try.
        progress: Whether to draw a bar where there is a terminal; or a function that is called, in
            the caller's thread, with how many bytes are here and of how many.
        cancellation: Ends the fetch with an error, from another thread.

    Raises:
        FetchError: It could not be fetched; each attempt's cause is told. `FetchTimeoutError` if
            the last one took too long.
        ImportError: The package that talks to the source is not installed; its name is told.
        ValueError: An address or a name that is refused, or a digest that can't be parsed.

    Example:
        >>> import shardproof
        >>> from shardproof.testing.faults import serve_hub
        >>> with serve_hub({"train/0.bin": b"1234"}) as hub:
        ...     fetched = shardproof.fetch(f"{hub.url}/train/0.bin", output_dir)
        >>> fetched.path.name, fetched.path.read_bytes(), fetched.proven
        ('0.bin', b'1234', False)
    """
    refuse_empty(to=to)
    address = source if isinstance(source, str) else None
    if name is None:
        if address is None:
            raise ValueError("name: expected the name of a file of the source, found None")
        address, name = split_name(address)
    _refuse_name(name)
    target = os.path.join(os.path.abspath(to), name)
    shown = bar(name) if progress is True else contextlib.nullcontext(progress or None)

    def work(own: Stop) -> FetchResult:
        def on_bytes(n_bytes: int, size: int | None) -> None:
            if show is not None and not own.is_set():  # then the bar may be gone
                show(n_bytes, size or n_bytes)

        with contextlib.ExitStack() as stack:
            opened = source
            if isinstance(opened, str):
                opened = open_source(address or opened)
                stack.callback(opened.close)
            return fetch_file(
                opened,
                name,
                target,
                digest=digest,
                limits=limits,
                cancellation=cancellation,
                on_bytes=on_bytes,
            )

    # In the caller's thread, which puts the terminal right even if it does not wait for the work.
    with shown as show:
        return apart(work)


@checked
def fetch_file(
    source: Source,
    name: str,
    path: str | os.PathLike[str],
    *,
    file: RemoteFile | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    cancellation: Cancellation | None = None,
    on_bytes: OnBytes | None = None,
) -> FetchResult:
    """Fetch one file of a source to a path of its own, whole and proven.

    Bytes go to a part beside it. When a connection breaks, the next attempt goes on from where it
    was, if the source says that the file is still the same one (RFC 9110, 13.1.5), or the digest of
    the whole is known, and from the first byte otherwise. So does the next fetch, in this process
    or in another one, after an error or a kill: until then a directory
    ``.shardproof-<...>.part`` is beside the name, for a week at most. Size and digest are compared
    before the name exists. A regular
    file that has the name already is left where it is if it is the right one, and moved aside if
    not: to ``<name>.bad-<8 digits>``.

    Args:
        source: Where it comes from.
        name: What it is called there.
        path: What it is to be called here; its directory is made if need be.
        file: What is known of it: from the source's listing, or from a manifest. None to ask.
        digest: ``"sha256:<hex>"`` or another that `shardproof` can prove; goes before the source's.
        limits: How long and how often to try.
        cancellation: Ends the fetch with an error, from another thread.
        on_bytes: Called with how many bytes are here, and of how many where that is known, in the
            caller's thread.

    Raises:
        FetchError: It could not be fetched; each attempt's cause is told. `FetchTimeoutError` if
            the last one took too long.
        ValueError: A name that is refused, or a digest that can't be parsed.

    Example:
        >>> from shardproof.fetching import fetch_file, open_source
        >>> from shardproof.testing.faults import serve_hub
        >>> with serve_hub({"train/0.bin": b"1234"}) as hub:
        ...     with open_source(f"{hub.url}/train") as source:
        ...         fetched = fetch_file(source, "0.bin", output_dir / "first.bin")
        >>> fetched.path.read_bytes(), fetched.proven
        (b'1234', False)
    """
    refuse_empty(path=path)
    _refuse_name(name)
    target = os.path.abspath(path)

    def work(own: Stop) -> FetchResult:
        import_for(source)
        stop = own if cancellation is None else Stop()
        with (cancellation or Cancellation()).register(stop.set):
            return fetch_to(
                source,
                name,
                target,
                goal=Goal(quoted(name), f"{source.url}/{name}", target),
                file=file,
                digest=digest,
                limits=limits,
                stop=stop,
                on_bytes=to_waiter(on_bytes),
            )

    return apart(work)


def _refuse_name(name: str) -> None:
    for refusal in refusals([name]):
        raise ValueError(f"name: {quoted(name)} is refused: {refusal.reason}")
