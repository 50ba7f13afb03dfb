"""What stands in the place of a shard is told, and nothing else is taken for it."""

import pytest

from shardproof.probes.impostors import impostor, is_text
from tests.probes.probing import asked

OID = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize 3087467144\n"

IMPOSTORS = {
    "lfs": (LFS, "Git LFS pointer of 3 087 467 144 bytes: run `git lfs pull`"),
    "lfs of old": (
        LFS.replace("git-lfs.github", "hawser.github"),
        "Git LFS pointer of 3 087 467 144 bytes: run `git lfs pull`",
    ),
    "lfs with an extension": (
        LFS.replace("oid", f"ext-0-foo sha256:{OID}\noid", 1),
        "Git LFS pointer of 3 087 467 144 bytes: run `git lfs pull`",
    ),
    "annex": (
        f"/annex/objects/SHA256E-s1048576--{OID}.bin\n",
        "git-annex pointer of 1 048 576 bytes: run `git annex get`",
    ),
    "annex by address": (
        "/annex/objects/URL--https&c%%example.org%a",
        "git-annex pointer: run `git annex get`",
    ),
    "html": ("\ufeff \n<!DOCTYPE html><title>Sign in</title>", "HTML page: "),
    "html without a type": ("<html lang=en>" + "x" * 5000, "HTML page: "),
    "html after a comment": ("<!-- proxy -->\n<HTML>", "HTML page: "),
    "hub": ('{"error": "Repository not found"}', "error of a server, '\"Repository not found\"}'"),
    "store": (
        '<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>',
        "error of a store, 'AccessDenied': fetch it again",
    ),
}


def told(text: str, **keywords) -> str | None:
    return asked(lambda read, size: impostor(read, size, **keywords), text.encode())


@pytest.mark.parametrize(("text", "found"), IMPOSTORS.values(), ids=IMPOSTORS)
def test_it_is_reported(text: str, found: str) -> None:
    assert (told(text) or "").startswith(found)


@pytest.mark.parametrize("name", IMPOSTORS)
def test_among_texts_only_pointers_are(name: str) -> None:
    found = told(IMPOSTORS[name][0], among_texts=True)
    assert (found is not None) == name.startswith(("lfs", "annex"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        LFS.replace("size", "sizes"),
        LFS.replace("sha256", "sha512"),
        LFS + "more",
        "see " + LFS,
        LFS + "\n" * 1024,
        "/annex/objects",
        "/annex/objects/a b",
        "<!DOCTYPE svg>",
        "<htmlx>",
        '{"errors_seen": 3}',
        '{"error": null}',
        '{"a": 1, "error": "x"}',
        "<Error><Message>x</Message></Error>",
    ],
)
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert told(text) is None


def test_names_of_texts() -> None:
    assert is_text("a/README.MD")
    assert not is_text("model.safetensors")
