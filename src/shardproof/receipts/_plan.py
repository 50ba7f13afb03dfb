"""Plans: which shard is made of what, under a name that says all it depends on."""

import datetime
import hashlib
import heapq
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from shardproof._base.arguments import as_int, checked, count
from shardproof._base.messages import quoted, shown
from shardproof._base.names import real_root, refusals
from shardproof._base.opening import refuse_no_path
from shardproof.errors import ManifestError, ReceiptError
from shardproof.receipts._canonical import canonical_json, canonical_path, hash_of, plain
from shardproof.receipts._directories import (
    MAX_KINDS,
    MAX_PLAN_BYTES,
    MAX_SHARDS,
    PLAN_FILE,
    read_plan_file,
    refuse_version,
)
from shardproof.receipts._input_files import InputFile, identity_of
from shardproof.receipts._pins import Pin

_METHOD = "size-balanced-1"  # in every plan's hash: another way to deal files makes another plan


class Assignment(msgspec.Struct, frozen=True):
    """What one shard is made of.

    Attributes:
        shard_index: The shard.
        files: Its files in the order in which they are read: by path.
        total_bytes: The sum of their sizes; where rows are dealt out, their part of it.
    """

    shard_index: int
    files: tuple[InputFile, ...]
    total_bytes: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The deterministic assignment of a data set's files to shards.

    The fields are those of ``plan.json`` as NVIDIA-NeMo/Nemotron's data_prep writes it, and four
    more: ``config``, ``pins``, ``run_hash``, ``kinds``.

    Attributes:
        version: Of the file's form: ``"1.0"``.
        created_at: When it was made, in UTC; no part of the hash.
        plan_hash: 16 hexadecimal digits that name it.
        dataset_name: Name of the data set.
        n_shards: How many shards there are (``num_shards`` in the file).
        source_fingerprint: ``"sha256:<hex>"`` of what every source file is known by.
        config_hash: 16 hexadecimal digits of ``config``.
        determinism_constraints: What else the bytes depend on, such as versions of libraries.
        resolved_tokenizer: The tokenizer with its revision; ``{"type": "none"}`` without one.
        file_assignments: What each shard is made of, by index.
        config: What the shards' content depends on beside all this.
        pins: The inputs that were pinned, for later plans to reuse.
        run_hash: The run that the plan is part of.
        kinds: The kinds of outputs that each shard owes, unless it is empty; none where the plan
            doesn't say. No part of the hash.
    """

    version: str
    created_at: str
    plan_hash: str
    dataset_name: str
    n_shards: int = msgspec.field(name="num_shards")
    source_fingerprint: str
    config_hash: str
    determinism_constraints: dict[str, str]
    resolved_tokenizer: dict[str, Any]
    file_assignments: tuple[Assignment, ...]
    config: dict[str, Any] = {}
    pins: tuple[Pin, ...] = ()
    run_hash: str = ""
    kinds: tuple[str, ...] = ()

    @classmethod
    @checked
    def load(cls, plan_dir: str | os.PathLike[str]) -> "Plan":
        """Return the plan of the ``plan.json`` in a directory; made by shardproof or by Nemotron.

        Raises:
            ManifestNotFoundError: There is none.
            ManifestError: It can't be read, or does not have each shard once and in order.
            OSError: The file system failed.

        Example:
            >>> from shardproof import receipts
            >>> receipts.Plan.load(plan_dir).n_shards
            3
        """
        refuse_no_path(plan_dir=plan_dir)
        root = real_root(plan_dir)
        plan = read_plan_file(root, Plan)
        refuse_version(plan.version, root)
        found = [assignment.shard_index for assignment in plan.file_assignments]
        if found != list(range(plan.n_shards)):
            problem = f"expected an assignment for each of {plan.n_shards} shards, in order"
            path = os.path.join(root, PLAN_FILE)
            raise ManifestError(problem, path=path, field="file_assignments")
        return plan


@checked
def make_plan(
    dataset_name: str,
    files: Sequence[InputFile],
    *,
    n_shards: int,
    config: Mapping[str, object] | None = None,
    tokenizer: Mapping[str, object] | None = None,
    determinism: Mapping[str, str] | None = None,
    pins: Sequence[Pin] = (),
    kinds: Sequence[str] = (),
) -> Plan:
    """Return the plan for a data set: the same one from the same inputs, on every machine.

    Args:
        dataset_name: Name of the data set; it becomes a directory.
        files: What is read; `input_files` lists local ones.
        n_shards: How many shards to make, up to a million.
        config: All settings that the content of the shards depends on; values of JSON, and paths.
        tokenizer: ``pin.tokenizer(...)``; its ``resolved_revision`` must be there.
        determinism: Versions of libraries and whatever else the bytes depend on.
        pins: Pinned inputs to write down; the source files' own revisions count by themselves.
        kinds: The kinds of outputs without which no shard is done, such as ``["bin", "idx"]``; see
            `ClaimedShard.output_path`. Where none are named, each shard owes what its work has
            written. They are no part of ``plan_hash``: a plan that is there already takes them
            over, and keeps what was done.

    Raises:
        ReceiptError: A tokenizer without a revision, no files, a file twice, a name that no plan
            can hold.
        TypeError: A setting that JSON has no word for.
        ValueError: ``n_shards`` out of range, NaN in the settings.

    Example:
        >>> from shardproof import receipts
        >>> plan = receipts.make_plan("corpus", receipts.input_files(text_dir), n_shards=4)
        >>> plan.n_shards, len(plan.plan_hash)
        (4, 16)
    """
    count("n_shards", n_shards, 1, MAX_SHARDS)
    reasons = [reason for _, _, reason in refusals([dataset_name])]
    reasons += ["it has a slash"] if "/" in dataset_name else []
    if reasons:
        problem = f"dataset_name: {quoted(dataset_name)} can't be a directory: {reasons[0]}"
        raise ReceiptError(problem)
    files = _whole_files(files)
    known = sorted(map(identity_of, files), key=canonical_json)
    fingerprint = f"sha256:{hashlib.sha256(canonical_json(known)).hexdigest()}"
    settings = msgspec.convert(plain(config or {}, "config"), dict[str, Any])
    said: dict[str, Any] = {
        "dataset_name": dataset_name,
        "source_fingerprint": fingerprint,
        "resolved_tokenizer": resolved_tokenizer(tokenizer),
        "determinism_constraints": {**(determinism or {}), "assignment": _METHOD},
        "config_hash": hash_of(settings),
    }
    paths = sorted(str(identity["path"]) for identity in known)
    now = datetime.datetime.now(datetime.UTC)
    return Plan(
        version="1.0",
        created_at=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        plan_hash=hash_of(said | {"num_shards": n_shards, "file_paths": paths}),
        n_shards=n_shards,
        file_assignments=assign(files, n_shards),
        config=settings,
        pins=tuple(pins),
        kinds=_told_apart(kinds),
        **said,
    )


def _whole_files(files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files, their sizes as integers of Python; refuse what no plan can be made of."""
    if not files:
        raise ReceiptError("expected source files, found none")
    whole: dict[str, InputFile] = {}
    for file in files:
        where = file.local_path or file.path
        size = as_int(f"size of '{shown(where)}'", file.size)
        path = canonical_path(file.path)
        if path in whole:
            raise ReceiptError(f"the source file '{shown(where)}' is named twice", path=where)
        if size < 0:
            problem = f"expected a size of 0 or more of '{shown(where)}', found {size}"
            raise ReceiptError(problem, path=where)
        if file.row_modulus is not None:
            problem = f"expected whole files, found only some rows of '{shown(where)}'"
            raise ReceiptError(problem, path=where)
        whole[path] = file if size is file.size else msgspec.structs.replace(file, size=size)
    return list(whole.values())


def _told_apart(kinds: Sequence[str]) -> tuple[str, ...]:
    if isinstance(kinds, str):
        raise TypeError("kinds: expected a list, found str")
    if wrong := [kind for kind in kinds if not (kind and kind.isprintable())]:
        raise ReceiptError(f"kinds: expected names such as 'bin', found {quoted(wrong[0])}")
    if len(kinds) > MAX_KINDS:
        raise ReceiptError(f"kinds: expected at most {MAX_KINDS}, found {len(kinds)}")
    return tuple(sorted(set(kinds)))


def assign(files: Sequence[InputFile], n_shards: int) -> tuple[Assignment, ...]:
    """Deal files out to shards; each file, or each row, to exactly one."""
    # The largest file goes first, to the shard that has least so far (Graham, "Bounds on
    # multiprocessing timing anomalies", 1969: at most 4/3 of the best). Where there are fewer files
    # than shards, each file's rows are dealt out to shards of its own.
    ordered = sorted(files, key=lambda file: (-file.size, file.path))
    deal = _dealt_by_rows if len(ordered) < n_shards else _dealt_by_size
    return tuple(
        Assignment(index, tuple(sorted(shard, key=lambda file: file.path)), n_bytes)
        for index, (shard, n_bytes) in enumerate(deal(ordered, n_shards))
    )


_Dealt = list[tuple[list[InputFile], int]]


def _dealt_by_size(ordered: Sequence[InputFile], n_shards: int) -> _Dealt:
    shards: list[list[InputFile]] = [[] for _ in range(n_shards)]
    # How many files a shard has decides where sizes don't: that is in turns, if none is known.
    heap = [(0, 0, index) for index in range(n_shards)]
    for file in ordered:
        n_bytes, n_files, index = heap[0]
        shards[index].append(file)
        heapq.heapreplace(heap, (n_bytes + file.size, n_files + 1, index))
    sizes = {index: n_bytes for n_bytes, _, index in heap}
    return [(shard, sizes[index]) for index, shard in enumerate(shards)]


def _dealt_by_rows(ordered: Sequence[InputFile], n_shards: int) -> _Dealt:
    """Give each file shards of its own; the file with the largest parts gets the next one."""
    shares = [1] * len(ordered)
    # Fractions, since floats of large sizes would be equal where the parts are not.
    heap = [(Fraction(-file.size), 1, place) for place, file in enumerate(ordered)]
    heapq.heapify(heap)
    for _ in range(n_shards - len(ordered)):
        place = heap[0][2]
        shares[place] += 1
        part = Fraction(-ordered[place].size, shares[place])
        heapq.heapreplace(heap, (part, shares[place], place))
    dealt: _Dealt = []
    for file, n_parts in zip(ordered, shares, strict=True):
        if n_parts == 1:
            dealt.append(([file], file.size))
            continue
        for remainder in range(n_parts):
            rows = msgspec.structs.replace(file, row_modulus=n_parts, row_remainder=remainder)
            dealt.append(([rows], file.size // n_parts + (remainder < file.size % n_parts)))
    return dealt


def resolved_tokenizer(tokenizer: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the tokenizer as plans and runs hash it; refuse one without its revision."""
    resolved = msgspec.convert(plain(tokenizer or {"type": "none"}, "tokenizer"), dict[str, Any])
    revision = resolved.get("resolved_revision")
    if resolved.get("type") != "none" and not (isinstance(revision, str) and revision):
        problem = "expected a tokenizer with its resolved_revision, found"
        how = "pin_hub or pin_files find it out: tokenizer=pin_hub(...).tokenizer()"
        raise ReceiptError(f"{problem} {quoted(revision)}; {how}")
    return resolved


def encode_plan(plan: Plan) -> bytes:
    """Return the text of ``plan.json``; refuse one that is larger than what is read again."""
    data = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    if len(data) > MAX_PLAN_BYTES:
        raise ReceiptError(f"expected a plan of at most {MAX_PLAN_BYTES} bytes, found {len(data)}")
    return data + b"\n"
