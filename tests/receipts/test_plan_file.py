"""That no key stands twice in ``plan.json`` is seen quickly where it has the usual fields.

What is refused is the same as without that.
"""

import json
import re
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


MEMBER = re.compile(rb'"\w+": (?:"[^"]*"|[\d.]+|null),')


@st.composite
def spoilt_plans(draw: st.DrawFn) -> bytes:
    """Members that are gone, there twice, or new; several of them."""
    text = TEXT
    for how in draw(st.lists(st.sampled_from(["gone", "twice", "new"]), max_size=4)):
        start, stop = draw(st.sampled_from([match.span() for match in MEMBER.finditer(text)]))
        member = text[start:stop]
        spoilt = {"gone": b"", "twice": member * 2, "new": b'"x": {"path": 1},' + member}
        text = text[:start] + spoilt[how] + text[stop:]
    return text


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
