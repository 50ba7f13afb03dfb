"""Pinned inputs: the hub's commit, the user's, the earlier plan's, or an error; never a guess."""

import errno
import os
from collections.abc import Iterator

import msgspec
import pytest

from shardproof import RevisionError, receipts
from shardproof.testing.faults import Hub, HubFault
from tests.helpers.planning import source

hf = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")
utils = pytest.importorskip("huggingface_hub.utils")
NAME = "org/tokenizer"


@pytest.fixture
def hub(shard_hub: Hub, monkeypatch) -> Hub:
    monkeypatch.setattr(constants, "ENDPOINT", shard_hub.url)
    shard_hub.put("vocab.json", b"{}", repo=NAME, repo_type="model")
    return shard_hub


def commit_of(hub: Hub, revision: str | None = None) -> str:
    return hf.HfApi(endpoint=hub.url, token=False).model_info(NAME, revision=revision).sha


def record(output_dir, pin: receipts.Pin, **changes: str) -> None:
    tokenizer = pin.tokenizer()
    plan = receipts.make_plan("corpus", [source("a")], n_shards=1, tokenizer=tokenizer, pins=[pin])
    plan = msgspec.structs.replace(plan, **changes)
    receipts.open_run(output_dir, datasets=["corpus"], tokenizer=tokenizer).store(plan)


def test_a_branch_becomes_the_commit_that_it_is(hub: Hub) -> None:
    pin = receipts.pin_hub(NAME)
    assert pin == receipts.Pin(kind="model", name=NAME, revision=commit_of(hub))
    assert pin.tokenizer(add_eos=True) == {
        "type": "huggingface",
        "model": NAME,
        "resolved_revision": commit_of(hub),
        "add_eos": True,
    }


def test_a_data_set(hub: Hub) -> None:
    hub.put("x.bin", b"x", repo="org/data", repo_type="dataset")
    assert len(receipts.pin_hub("org/data", repo_type="dataset").revision) == 40
    with pytest.raises(RevisionError, match="shows no model 'org/data' to you") as caught:
        receipts.pin_hub("org/data")
    assert caught.value.kind == "refused"


@pytest.mark.parametrize(("token", "is_shown"), [("hf_secret", True), (False, False)])
def test_the_hub_and_the_token_may_be_given(
    shard_hub: Hub, monkeypatch, token: str | bool, is_shown: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_environment")
    shard_hub.put("vocab.json", b"{}", repo=NAME, repo_type="model")
    pin = receipts.pin_hub(NAME, endpoint=shard_hub.url, token=token)
    assert pin.revision == commit_of(shard_hub)
    assert ("authorization" in shard_hub.requests[0].headers) == is_shown


def test_a_commit_is_taken_as_it_is_and_nothing_is_asked(hub: Hub) -> None:
    hub.fault("*", HubFault.STATUS_503)
    pin = receipts.pin_hub(NAME, "a" * 40)
    assert pin.revision == pin.requested == "a" * 40
    assert not hub.requests


@pytest.mark.parametrize("offline", ["error", "reuse"])
def test_what_the_hub_does_not_have_is_an_error(hub: Hub, tmp_path, offline) -> None:
    """The hub did answer: a commit of an earlier plan would be another one than was asked for."""
    record(tmp_path, receipts.Pin(kind="model", name=NAME, revision="b" * 40, requested="v9"))
    with pytest.raises(RevisionError, match=f"shows no model '{NAME}' at 'v9'"):
        receipts.pin_hub(NAME, "v9", offline=offline, output_dir=tmp_path)


class TestOffline:
    @pytest.fixture(params=["503", "refused", "HF_HUB_OFFLINE"])
    def down(self, request, hub: Hub, monkeypatch) -> Iterator[Hub]:
        match request.param:
            case "503":
                hub.fault("*", HubFault.STATUS_503)
            case "refused":
                monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
            case _:
                monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        # Before 1.0, huggingface_hub keeps a session that was made when it was online, and after.
        forget_sessions = getattr(utils, "reset_sessions", lambda: None)
        forget_sessions()
        yield hub
        forget_sessions()

    def test_it_is_an_error_that_says_how_to_pin(self, down) -> None:
        with pytest.raises(RevisionError) as caught:
            receipts.pin_hub(NAME, "main")
        text = str(caught.value)
        assert f"which commit of '{NAME}' is meant by 'main'" in text
        assert "40 hexadecimal digits" in text
        assert 'offline="reuse"' in text
        assert caught.value.__suppress_context__  # of several lines, which only our text quotes

    def test_reuse_without_an_earlier_plan_is_an_error(self, down, tmp_path) -> None:
        for output_dir in (None, tmp_path, tmp_path / "none"):
            with pytest.raises(RevisionError, match="There is no earlier plan"):
                receipts.pin_hub(NAME, offline="reuse", output_dir=output_dir)

    def test_earlier_plans_that_can_not_be_looked_for(
        self, down, tmp_path, make_shard_faults
    ) -> None:
        """They are not taken for none: another commit would begin everything anew."""
        receipts.open_run(tmp_path, datasets=["corpus"])
        make_shard_faults(tmp_path).fail("scandir", errno.EIO, match="runs")
        with pytest.raises(OSError, match="Input/output error"):
            receipts.pin_hub(NAME, offline="reuse", output_dir=tmp_path)

    def test_the_earlier_plans_commit_is_reused(self, down, tmp_path) -> None:
        earlier = receipts.Pin(kind="model", name=NAME, revision="c" * 40)
        record(tmp_path, earlier)
        assert receipts.pin_hub(NAME, offline="reuse", output_dir=tmp_path) == earlier

    def test_another_request_is_not_that_one(self, down, tmp_path) -> None:
        record(tmp_path, receipts.Pin(kind="model", name=NAME, revision="c" * 40, requested="v2"))
        record(tmp_path, receipts.Pin(kind="dataset", name=NAME, revision="c" * 40))
        record(tmp_path, receipts.Pin(kind="model", name="org/x", revision="c" * 40))
        with pytest.raises(RevisionError, match="no earlier plan"):
            receipts.pin_hub(NAME, offline="reuse", output_dir=tmp_path)

    def test_the_newest_plan_counts_and_broken_ones_do_not(self, down, tmp_path) -> None:
        for day, commit in enumerate("dfe", 1):
            pin = receipts.Pin(kind="model", name=NAME, revision=commit * 40)
            record(tmp_path, pin, created_at=f"2026-01-0{day % 3 + 1}T00:00:00Z")
        broken = tmp_path / "runs" / "x" / "datasets" / "x" / "x"
        broken.mkdir(parents=True)
        (broken / "plan.json").write_text("{")
        assert receipts.pin_hub(NAME, offline="reuse", output_dir=tmp_path).revision == "f" * 40


@pytest.mark.parametrize("sha", [None, "main", "A" * 40])
def test_a_hub_that_names_no_commit(hub, monkeypatch, sha) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr(hf.HfApi, "repo_info", lambda *_, **__: SimpleNamespace(sha=sha))
    with pytest.raises(RevisionError, match="expected the hub to name a commit"):
        receipts.pin_hub(NAME)


class TestFiles:
    def test_a_file_is_known_by_its_bytes(self, tmp_path) -> None:
        pins = []
        for place, content in [("a", "x"), ("b", "x"), ("c", "y")]:
            (tmp_path / place).mkdir()
            path = tmp_path / place / "tok[1].model"
            path.write_text(content)
            pins.append(receipts.pin_files(path))
        assert pins[0] == pins[1]
        assert pins[0].revision.startswith("sha256:")
        assert pins[0].revision != pins[2].revision
        assert pins[0].tokenizer()["type"] == "local"

    def test_a_directory_by_all_its_files(self, tmp_path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "vocab").write_text("x")
        before = receipts.pin_files(tmp_path)
        os.utime(tmp_path / "sub" / "vocab", (1, 1))
        assert receipts.pin_files(tmp_path) == before
        (tmp_path / "more").write_text("")
        assert receipts.pin_files(tmp_path) != before

    def test_nothing_is_an_error(self, tmp_path) -> None:
        with pytest.raises(RevisionError, match="found nothing") as caught:
            receipts.pin_files(tmp_path / "none")
        assert caught.value.kind == "refused"
