"""That no key stands twice in ``plan.json`` is seen quickly where it has the usual fields.

What is refused is the same as without that.
"""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import ManifestError, receipts
from shardproof._base import json as _json
from shardproof.receipts import _directories, _pins
from shardproof.receipts._directories import _UsualPlan
from shardproof.receipts._plan import encode_plan
from shardproof.testing.strategies import hostile_json
from tests.helpers.planning import source

KINDS = (_directories._Header, receipts.Plan, _pins._PinsOfAPlan)

FULL = receipts.InputFile(
    path="a.txt",
    size=1,
    local_path="/data/a.txt",
    etag="e",
    mtime=1.5,
    version_id="v",
    hf_repo_id="org/name",
    hf_filename="a.txt",
    hf_revision="r",
)
PLAN = receipts.make_plan(
    "corpus",
    [FULL, source("b.txt", 7)],
    n_shards=3,
    config={"max_tokens": 5, "text": "x"},
    tokenizer={"type": "huggingface", "model": "m", "resolved_revision": "r"},
    determinism={"tokenizers": "0.20"},
    pins=[receipts.Pin(kind="model", name="m", revision="r", requested="main")],
    kinds=["bin", "idx"],
)
TEXT = encode_plan(PLAN)
OURS_ALONE = ("config", "pins", "run_hash", "kinds")


def refusal(data: bytes, kind: Any, usual: type | None) -> tuple[str, Any, Any] | None:
    try:
        _json.decode(data, kind, path="/dir/plan.json", usual=usual)
    except ManifestError as error:
        return error.problem, error.line, error.field
    return None


class Member(dict):
    """An object that may have a key twice: a member of each number."""


def pairs_of(value: Any) -> Any:
    if isinstance(value, dict):
        return Member(enumerate([key, pairs_of(item)] for key, item in value.items()))
    return [*map(pairs_of, value)] if isinstance(value, list) else value


def text_of(value: Any) -> str:
    if isinstance(value, Member):
        members = (f"{json.dumps(key)}: {text_of(item)}" for key, item in value.values())
        return "{" + ", ".join(members) + "}"
    return f"[{', '.join(map(text_of, value))}]" if type(value) is list else json.dumps(value)


def objects_in(value: Any) -> list[Member]:
    if isinstance(value, Member):
        return [value, *(found for _, item in value.values() for found in objects_in(item))]
    return [found for item in value for found in objects_in(item)] if type(value) is list else []


VALUES: list[Any] = ["", "x", 0, 1.5, None, True, [], ["x"], {}, {"path": "x"}, {"x": {"y": "z"}}]


@st.composite
def spoilt_plans(draw: st.DrawFn) -> bytes:
    """Members that are gone, there twice, new, or have another value; several of them."""
    tree = pairs_of(json.loads(TEXT))
    for _ in range(draw(st.integers(0, 5))):
        members = draw(st.sampled_from(objects_in(tree)))
        if not members:
            continue
        number = draw(st.sampled_from(sorted(members)))
        how = draw(st.sampled_from(["gone", "twice", "new", "changed"]))
        if how == "gone":
            del members[number]
        elif how == "changed":
            members[number][1] = pairs_of(draw(st.sampled_from(VALUES)))
        else:
            again = copy.deepcopy(members[number])
            if how == "new":
                again[0] = draw(st.sampled_from(["x", "files", "run_hash", "a\tb"]))
            if draw(st.booleans()):
                again[1] = pairs_of(draw(st.sampled_from(VALUES)))
            members[max(members) + 1] = again
    return text_of(tree).encode()


@given(data=spoilt_plans() | hostile_json(json.loads(TEXT)), kind=st.sampled_from(KINDS))
def test_what_is_refused_is_the_same(data: bytes, kind: Any) -> None:
    assert refusal(data, kind, _UsualPlan) == refusal(data, kind, None)


def test_a_mark_that_is_escaped_hides_none() -> None:
    data = TEXT.replace(b'"size":', b'"size": 1, "size":', 1)
    data = data.replace(b'"x"', rb'"\u0022\u0022"')
    for kind in KINDS:
        refused = refusal(data, kind, _UsualPlan)
        assert refused is not None
        assert "'size' stands twice" in refused[0]


@pytest.mark.parametrize("lacking", [(), OURS_ALONE], ids=["ours", "Nemotron's"])
def test_a_usual_plan_is_not_looked_at_twice(lacking, tmp_path, monkeypatch) -> None:
    document = json.loads(TEXT)
    for name in lacking:
        del document[name]
    (tmp_path / "plan.json").write_text(json.dumps(document, indent=1))
    read = _json._keeps_all_keys
    monkeypatch.setattr(
        _json, "_keeps_all_keys", lambda data, kind: kind is _UsualPlan and read(data, kind)
    )
    monkeypatch.setattr(_json.json, "loads", None)

    assert receipts.Plan.load(tmp_path).plan_hash == PLAN.plan_hash
    assert receipts.ReceiptStore(tmp_path).n_shards == 3


def test_all_fields_are_usual() -> None:
    for kind, known in (
        (receipts.Plan, _UsualPlan),
        (receipts.Assignment, _directories._UsualAssignment),
        (receipts.InputFile, _directories._UsualSource),
    ):
        names = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert names == set(known.__struct_fields__)
