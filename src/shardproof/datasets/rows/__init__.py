"""Datasets of the Hugging Face Hub and local text, row by row, of which little is on disk."""

import dataclasses
import os
from collections.abc import Sequence
from typing import SupportsIndex, TypedDict, Unpack

from shardproof._base.arguments import checked, count
from shardproof._base.messages import quoted, shown
from shardproof._base.names import refusals
from shardproof._base.opening import refuse_no_path
from shardproof.datasets.rows import _listings
from shardproof.datasets.rows._card import configs_of, told_default
from shardproof.datasets.rows._rows import ShardedRows
from shardproof.datasets.rows._shard_lists import ParquetShards, ResumePlan, plan_of, text_shards
from shardproof.datasets.rows._specs import HubSpec, TextSpec, parse_dataset_specs
from shardproof.datasets.rows._splits import chosen_files, refuse_script, split_files
from shardproof.errors import SourceError
from shardproof.fetching.cache import Cleanup, cleanup_policy
from shardproof.fetching.sources import Source
from shardproof.fetching.transfer import Limits

__all__ = [
    "HubSpec",
    "ResumePlan",
    "ShardedRows",
    "TextSpec",
    "hf_load_dataset_sharded",
    "load_dataset_from_spec",
    "parse_dataset_specs",
    "resolve_resume_plan",
]

Spec = HubSpec | TextSpec | str
Path = str | os.PathLike[str]
DataFiles = str | Sequence[str]


@checked
def hf_load_dataset_sharded(  # noqa: PLR0917 - as others have it, and are called
    repo_id: str,
    split: str = "train",
    name: str | None = None,
    cache_dir: Path | None = None,
    data_files: DataFiles | None = None,
    prefetch: int = 1,
    *,
    skip: int = 0,
    revision: str | None = None,
    columns: Sequence[str] | None = None,
    cleanup: Cleanup | None = None,
    max_cache_bytes: int | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    endpoint: str | None = None,
    token: str | None = None,
    source: Source | str | None = None,
) -> ShardedRows:
    """Return the rows of a dataset on the Hub: read shard by shard, the next one on its way.

    The rows are dicts; ``.batches()`` and ``.shards()`` of what is returned deliver them as arrow's
    batches and as datasets. Which files they are, the dataset card says, or the names do; the order
    is that in which the library datasets reads them. Shards are parquet files, kept in
    ``<cache_dir>/hf_shards/<repo_id>/<split>/`` while they are needed. Where the Hub can't be
    asked, what is kept in ``<cache_dir>/listings`` of the commit is taken.

    Args:
        repo_id: ``"owner/name"``.
        split: ``"train"``, ``"test"``, ...
        name: Of the configuration, which the Hub calls a subset; None for the default one.
        cache_dir: Where shards are kept; None for ``"data"``.
        data_files: Names of files in the repository, or patterns with ``*`` and ``**``, in place
            of what card, split and name mean; none of them: no rows.
        prefetch: How many shards are fetched ahead.
        skip: Rows at the beginning that are not delivered. Shards before them are not fetched (only
            the end of each is read, for the number of its rows), and row groups not read.
        revision: Branch, tag or commit; None for the default branch. ``"refs/convert/parquet"`` has
            most datasets as parquet that are none.
        columns: Which to read; None for all.
        cleanup: ``"auto"``: only this shard and those ahead of it stay; ``"keep"``: all do.
            Where this and the limit are None: what ``HF_SHARD_CACHE_CLEANUP`` says, or ``"auto"``.
        max_cache_bytes: How many bytes of shards stay, those that were used last, in place of only
            those ahead; not with ``"keep"``, which removes nothing.
        limits: How long and how often a fetch tries.
        endpoint: Of the Hub; None for the one that ``HF_ENDPOINT`` names.
        token: For the Hub; None for the one that ``HF_TOKEN`` or ``hf auth login`` gives.
        source: Where the repository is, if not on the Hub: another source with the same files.

    Raises:
        SourceError: There is no such repository, split or file; the text says what there is.
        FetchError: The end of a file that is skipped can't be read.
        ShardReadError: It is not that of a parquet file.
        ValueError: An argument that means nothing, such as an empty text; more rows to skip than
            there are.
        ImportError: What is needed is not installed; the text says how to.
    """
    count("prefetch", prefetch)
    _refuse_empty_text(data_files, endpoint, source)
    if isinstance(columns, str):  # which is a sequence of texts, too
        raise TypeError(f"columns: expected a list of names, found the text {quoted(columns)}")
    policy = cleanup_policy(cleanup, max_cache_bytes)
    spec = HubSpec(repo_id, name=name, split=split, revision=revision)
    shards = dataclasses.replace(
        _listed(spec, cache_dir, data_files, _origin(spec, source, endpoint, token), limits),
        columns=None if columns is None else tuple(columns),
        lookahead=prefetch,
        policy=policy,
    )
    return ShardedRows(shards, skip)


def _refuse_empty_text(
    data_files: DataFiles | None, endpoint: str | None = None, source: Source | str | None = None
) -> None:
    """Refuse the value of a variable that is not set, which is not what None means."""
    names = [data_files] if isinstance(data_files, str) else data_files or ()
    given = {"data_files": names, "endpoint": [endpoint], "source": [source]}
    for argument in (argument for argument, values in given.items() if "" in values):
        problem = "expected None or a text, found an empty one: is a variable not set?"
        raise ValueError(f"{argument}: {problem}")


def _origin(
    spec: HubSpec, source: Source | str | None, endpoint: str | None, token: str | None
) -> _listings.Origin:
    """Return where the repository is: a relative path from where the process is now."""
    if source is None:
        repo, revision = spec.repo_id, spec.revision
        return _listings.HubAddress(repo_id=repo, revision=revision, endpoint=endpoint, token=token)
    if isinstance(source, str):
        scheme, mark, path = source.partition("://")
        if mark and scheme.lower() in {"file", "local"} and not path.startswith(("/", "~")):
            return f"{scheme}{mark}{os.path.abspath(path)}"
    return source


def _listed(
    spec: HubSpec,
    cache_dir: Path | None,
    data_files: DataFiles | None,
    origin: _listings.Origin,
    limits: Limits,
) -> ParquetShards:
    """Return the shards that are meant, as the source lists them."""
    refuse_no_path(cache_dir=cache_dir)
    root = os.path.abspath("data" if cache_dir is None else cache_dir)
    with _listings.opened(origin) as source:
        url, listing = source.url, _listings.Listing()
        if data_files is None or data_files:  # for no files, nothing is asked
            with_card = data_files is None
            if isinstance(origin, _listings.HubAddress):
                kept = _listings.KeptListings(root, spec.repo_id)
                listing = kept.ask(source, spec.revision, limits, with_card=with_card)
            else:
                listing = _listings.ask_listing(source, limits, with_card=with_card)
    if isinstance(origin, _listings.HubAddress) and listing.commit is not None:  # a branch moves on
        url = f"hf://datasets/{spec.repo_id}@{listing.commit}"
    if data_files is None:
        refuse_script(listing.files, spec.repo_id, url)
        card = listing.card or {}
        configs, told = configs_of(card, url), told_default(card, url)
        files = tuple(split_files(listing.files, spec.split, spec.name, url, configs, told=told))
    else:
        names = [data_files] if isinstance(data_files, str) else data_files
        files = tuple(chosen_files(listing.files, names, url))
    for refusal in refusals([file.name for file in files]):
        problem = f"'{shown(url)}' lists {quoted(refusal.name)}, which is refused: {refusal.reason}"
        raise SourceError(problem, kind="unusable")
    if isinstance(origin, _listings.HubAddress):
        origin = dataclasses.replace(origin, commit=listing.commit, files=files)
    return ParquetShards(
        origin=origin,
        url=url,
        files=files,
        cache_dir=root,
        split=spec.split,
        counts_path=os.path.join(root, "row_counts", f"{spec.repo_id.replace('/', '--')}.json"),
        limits=limits,
    )


class HubOptions(TypedDict, total=False):
    """What `load_dataset_from_spec` hands on to `hf_load_dataset_sharded`."""

    prefetch: int
    columns: Sequence[str] | None
    cleanup: Cleanup | None
    max_cache_bytes: int | None
    limits: Limits
    endpoint: str | None
    token: str | None
    source: Source | str | None


@checked
def load_dataset_from_spec(
    spec: Spec,
    cache_dir: Path | None = None,
    data_files: DataFiles | None = None,
    *,
    skip: int = 0,
    **options: Unpack[HubOptions],
) -> ShardedRows:
    r"""Return the rows of what a spec means.

    Args:
        spec: One of what `parse_dataset_specs` returns, or the text of one.
        cache_dir: Where shards of the Hub are kept.
        data_files: In place of the files that the spec means; such as a plan's.
        skip: Rows at the beginning that are not delivered.
        **options: Others of `hf_load_dataset_sharded`, for a spec of the Hub.

    Raises:
        TypeError: An option that there is not.
        ValueError: No spec, or several; and as `hf_load_dataset_sharded` does.
        SourceError: There are no such files.

    Example:
        >>> path = text_dir / "notes.txt"
        >>> _ = path.write_text("one\ntwo\n")
        >>> list(load_dataset_from_spec(f"txt:{path}:line"))
        [{'line': 'one'}, {'line': 'two'}]
    """
    found = _one(spec)
    if isinstance(found, TextSpec):
        _refuse_empty_text(data_files)
        if options:
            raise TypeError(f"{', '.join(options)}: not for a spec of text files")
        return ShardedRows(text_shards(found, data_files), skip)
    return hf_load_dataset_sharded(
        found.repo_id,
        found.split,
        found.name,
        cache_dir,
        data_files,
        revision=found.revision,
        skip=skip,
        **options,
    )


@checked
def resolve_resume_plan(
    spec: Spec | Sequence[tuple[str, SupportsIndex]],
    row_offset: int | None = 0,
    cache_dir: Path | None = None,
    data_files: DataFiles | None = None,
    *,
    endpoint: str | None = None,
    token: str | None = None,
    source: Source | str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> ResumePlan:
    """Return where to go on after so many rows: the files that are left, and what of the first.

    ``skip`` does the same in one step; this returns the place, for a log or for another reader of
    the files, and unpacks like a tuple.

    Args:
        spec: One of what `parse_dataset_specs` returns, or the text of one; or the files, each with
            the number of its rows.
        row_offset: How many rows are done; None is 0. As many as there are: no files are left.
        cache_dir: Where the numbers of rows are kept, so that each is asked for once; None for
            ``"data"``.
        data_files: In place of the files that the spec means.
        endpoint: As `hf_load_dataset_sharded` has it.
        token: As `hf_load_dataset_sharded` has it.
        source: As `hf_load_dataset_sharded` has it.
        limits: As `hf_load_dataset_sharded` has it.

    Raises:
        ValueError: There are not so many rows; no spec, or several; an empty text.
        SourceError: There are no such files.
        FetchError: The end of a file can't be read.
        ShardReadError: It is not that of a parquet file; a text file can't be read.

    Example:
        >>> plan = resolve_resume_plan([("a.parquet", 10), ("b.parquet", 20)], 12)
        >>> data_files, in_shard_offset, shard_label = plan
        >>> data_files, in_shard_offset, shard_label
        (('b.parquet',), 2, 'b.parquet (2/2) row 2')
    """
    row_offset = row_offset or 0
    count("row_offset", row_offset)
    _refuse_empty_text(data_files, endpoint, source)
    if not isinstance(spec, str | HubSpec | TextSpec):
        counts = [count("spec", rows) for _, rows in spec]
        return plan_of([name for name, _ in spec], counts, row_offset)
    found = _one(spec)
    if isinstance(found, TextSpec):
        return text_shards(found, data_files).plan(row_offset)
    origin = _origin(found, source, endpoint, token)
    return _listed(found, cache_dir, data_files, origin, limits).plan(row_offset)


def _one(spec: Spec) -> HubSpec | TextSpec:
    if not isinstance(spec, str):
        return spec
    specs = parse_dataset_specs(spec)
    if len(specs) > 1:
        raise ValueError(f"spec: expected one, found {len(specs)}; see parse_dataset_specs")
    return specs[0]
