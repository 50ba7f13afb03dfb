"""Pinned inputs: which revision of a tokenizer or a dataset is meant, said once and for all."""

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any, Literal

import msgspec

from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, shown, told, traced
from shardproof._base.opening import mode_of, real_path, refuse_no_path
from shardproof.errors import ManifestError, ManifestPermissionError, RevisionError
from shardproof.receipts._canonical import canonical_json
from shardproof.receipts._directories import plan_dirs, read_plan_file
from shardproof.receipts._input_files import describe, input_files

RepoType = Literal["model", "dataset"]

Offline = Literal["error", "reuse"]  # what to do where the hub can't be asked
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One input whose revision is known for good.

    Attributes:
        kind: ``"model"`` or ``"dataset"`` of the Hugging Face Hub, or ``"files"``.
        name: Of the repository, or of the local file or directory.
        requested: The branch, tag or commit that was asked for; None for the default branch.
        revision: The commit, or ``"sha256:<hex>"`` of local files.
    """

    kind: Literal["model", "dataset", "files"]
    name: str
    revision: str
    requested: str | None = None

    def tokenizer(self, **settings: object) -> dict[str, object]:
        """Return the pin as a plan's ``resolved_tokenizer``, with the settings of its use.

        Args:
            **settings: What else the tokens depend on, such as ``vocab_size``, ``add_bos``,
                ``add_eos``, ``trust_remote_code``.
        """
        kind = "local" if self.kind == "files" else "huggingface"
        return {"type": kind, "model": self.name, "resolved_revision": self.revision} | settings


@checked
def pin_hub(
    repo_id: str,
    revision: str | None = None,
    *,
    repo_type: RepoType = "model",
    offline: Offline = "error",
    output_dir: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
    token: str | bool | None = None,
    endpoint: str | None = None,
) -> Pin:
    """Return the commit that a name on the Hugging Face Hub stands for; never a guess.

    Args:
        repo_id: The repository, such as ``"openai-community/gpt2"``.
        revision: A commit of 40 hexadecimal digits, which is taken as it is and needs no network;
            or a branch or a tag; None for the default branch.
        repo_type: What it is.
        offline: What to do where the hub doesn't answer: raise, or ``"reuse"`` the commit that the
            newest plan below ``output_dir`` wrote down for the same name and ``revision``.
        output_dir: Where earlier runs are.
        timeout: Seconds to wait for the hub.
        token: As for `huggingface_hub.HfApi`: a token; None for the one of this machine, if it has
            one; False for none.
        endpoint: Address of the hub; None for the one that huggingface_hub is set to.

    Raises:
        RevisionError: The hub knows no such revision; or it can't be asked and there is no earlier
            plan to take it from. The text says how to pin it.
        OSError: Earlier plans could not be looked for.
        ImportError: huggingface_hub is not installed: ``pip install 'shardproof[hf]'``.

    Example:
        >>> from shardproof import receipts
        >>> commit = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
        >>> receipts.pin_hub("openai-community/gpt2", commit).revision == commit
        True
    """
    refuse_no_path(output_dir=output_dir)
    if revision is not None and _COMMIT.fullmatch(revision):
        return Pin(kind=repo_type, name=repo_id, requested=revision, revision=revision)
    try:
        commit = _ask(repo_id, revision, repo_type, timeout, endpoint=endpoint, token=token)
    except (ImportError, RevisionError):
        raise
    except Exception as error:
        # Whatever a client of HTTP raises where there is no network: no revision was found out.
        advice = 'Or give offline="reuse" and output_dir, to take it from the earlier plan.'
        if offline == "reuse":
            if pinned := _recorded(repo_id, revision, repo_type, output_dir):
                return pinned
            where = "without output_dir" if output_dir is None else f"below '{shown(output_dir)}'"
            advice = f"There is no earlier plan to take it from ({where})."
        meant = f"'{shown(revision or 'default')}'"
        raise RevisionError(
            f"could not find out which commit of '{shown(repo_id)}' is meant by {meant}:\n"
            f"{type(error).__name__}: {told(error)}\n"
            f"Pin it: give the commit's 40 hexadecimal digits as the revision.\n{advice}"
        ) from traced(error)
    return Pin(kind=repo_type, name=repo_id, requested=revision, revision=commit)


def _ask(
    repo_id: str, revision: str | None, repo_type: RepoType, timeout: float, **hub: Any
) -> str:
    from huggingface_hub import HfApi  # noqa: PLC0415 - an extra
    from huggingface_hub.errors import (  # noqa: PLC0415
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    api = HfApi(**hub)
    try:
        info = api.repo_info(repo_id, revision=revision, repo_type=repo_type, timeout=timeout)
    except (HFValidationError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        wanted = f"'{shown(repo_id)}'" + (f" at '{shown(revision)}'" if revision else "")
        problem = f"the hub shows no {repo_type} {wanted} to you; is the name right, is it private?"
        raise RevisionError(problem, kind="refused") from traced(error)
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        problem = f"expected the hub to name a commit of '{shown(repo_id)}'"
        raise RevisionError(f"{problem}, found {quoted(str(info.sha))}")
    return info.sha


class _PinsOfAPlan(msgspec.Struct):
    """What is looked at in an earlier plan."""

    created_at: str = ""
    pins: tuple[Pin, ...] = ()


def _recorded(
    repo_id: str, revision: str | None, kind: RepoType, output_dir: str | os.PathLike[str] | None
) -> Pin | None:
    """Return the pin of the newest plan that has one for this name and request."""
    if output_dir is None:
        return None
    try:
        found = plan_dirs(real_path(output_dir))
    except FileNotFoundError:
        return None  # there was no run yet
    newest: tuple[str, Pin] | None = None
    for plan_dir in found:
        try:
            plan = read_plan_file(str(plan_dir), _PinsOfAPlan)
        except ManifestPermissionError:
            raise  # it may be the newest, and then an older one is wrong
        except ManifestError:
            continue  # a plan that can't be read pins nothing
        for pin in plan.pins:
            is_meant = (pin.kind, pin.name, pin.requested) == (kind, repo_id, revision)
            if is_meant and (newest is None or plan.created_at > newest[0]):
                newest = plan.created_at, pin
    return newest[1] if newest else None


@checked
def pin_files(path: str | os.PathLike[str]) -> Pin:
    """Return a pin for a local tokenizer: by the bytes of its files, wherever they lie.

    Args:
        path: A file, or a directory, all of whose files count but hidden ones.

    Raises:
        RevisionError: There is nothing there.
        ReceiptError: A directory without files.
        OSError: It can't be read.

    Example:
        >>> from shardproof import receipts
        >>> receipts.pin_files(text_dir / "a.txt").tokenizer()["model"]
        'a.txt'
    """
    refuse_no_path(path=path)
    real = Path(real_path(path))
    mode = mode_of(real, follow=True)
    if not mode:
        problem = f"expected a file or a directory, found nothing at '{shown(real)}'"
        raise RevisionError(problem, kind="refused")
    is_dir = stat.S_ISDIR(mode)
    files = input_files(real, identity="digest") if is_dir else [describe(real, "", "digest")]
    content = canonical_json([[file.path, file.etag] for file in files])
    revision = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return Pin(kind="files", name=real.name, revision=revision)
