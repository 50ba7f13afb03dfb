"""Lists of digests as tools write them, recorded, and as their documentation shows them.

::

    python -m tests.formats.digest_dialects   # records anew what the tools of this machine write

``data/digest_dialects.json`` has the bytes of each list, and the version of what wrote it. The
records of a tool that is not there stay as they are. What is in ``DOCUMENTED`` was not written by
its tool: it follows what the tool's documentation, or its users, show.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

FILES = {"a.bin": b"a" * 300, "sub/b c.bin": b"b\n" * 70}

PROVEN, WEAK, UNKNOWN, REFUSED = "proven", "weak", "unknown", "refused"
"""What a list is worth: a proof, an agreement, nothing but names; or it is told to be no list."""

_DATA = Path(__file__).parent / "data/digest_dialects.json"
_NOT_TOOLS = {"cd", "echo", "printf"}

_RECORDED = r"""
SHA256SUMS :: sha256sum $N
SHA256SUMS :: sha256sum -b $N
SHA256SUMS :: sha256sum --tag $N
SHA256SUMS :: sha256sum -z $N
SHA256SUMS :: sha256sum ./a.bin './sub/b c.bin'
SHA256SUMS :: sha256sum $N | sed 's/$/\r/'
SHA256SUMS :: printf '\xef\xbb\xbf'; sha256sum $N
SHA256SUMS :: printf '\xff\xfe'; sha256sum $N | sed 's/$/\r/' | iconv -t UTF-16LE
SHA256SUMS :: printf '\xfe\xff'; sha256sum $N | iconv -t UTF-16BE
SHA256SUMS :: cd .. && sha256sum set/a.bin 'set/sub/b c.bin'
SHA256SUMS :: sha256sum $PWD/a.bin "$PWD/sub/b c.bin"
SHA256SUMS :: echo '# a comment'; echo '; another'; echo; sha256sum $N
hashes.txt :: sha256sum $N
manifest.txt :: sha256sum $N
SHASUMS256.txt :: sha256sum $N
checksums :: sha256sum $N
data.sha256 :: sha256sum $N
files.list :: sha256sum --tag $N
MD5SUMS :: md5sum $N
md5sum.txt :: md5sum --tag $N
checksums.txt :: md5sum -b $N
MD5SUM :: md5sum -z $N
SHA1SUMS :: sha1sum $N
SHA224SUMS :: sha224sum $N
SHA384SUMS :: sha384sum $N
hashes.txt :: sha384sum $N
SHA512SUMS :: sha512sum $N
CHECKSUMS :: sha512sum -b $N
B2SUMS :: b2sum $N
B2SUMS :: b2sum -l 256 $N
hashes.txt :: b2sum --tag -l 256 $N
cksum.txt :: cksum $N :: weak
checksums.txt :: cksum $N :: weak
hashes.txt :: cksum $N :: weak
hashes.txt :: cksum -a sm3 $N
x.sm3 :: cksum -a sm3 --untagged $N
hashes.txt :: cksum -a sha224 $N
checksums.txt :: cksum -a bsd $N :: refused
checksums.txt :: cksum -a sysv $N :: refused
SHASUMS :: shasum $N
SHASUMS :: shasum -b $N
SHASUMS :: shasum -U $N :: unknown
SHASUMS :: shasum -0 $N :: unknown
hashes.txt :: shasum --tag $N
SHA512-256SUMS :: shasum -a 512256 $N
x.sha512_224 :: shasum -a 512224 $N
SHASUMS256.txt :: shasum -a 256 $N
hashes.txt :: openssl dgst -sha256 $N
hashes.txt :: openssl dgst -sha3-512 $N
checksums.txt :: openssl dgst -sha512-256 $N
checksums.txt :: openssl dgst -sm3 $N
checksums.txt :: openssl dgst -blake2b512 $N
checksums.txt :: openssl dgst -blake2s256 $N
checksums.txt :: openssl dgst -rmd160 $N
MD5SUMS :: openssl dgst -md5 -c $N
SHA256SUMS :: openssl dgst -sha256 -r $N
sha3-256.txt :: openssl dgst -sha3-256 -r $N
SHA256SUMS :: sha256sum $N | $GPG --clearsign
SHA256SUMS.asc :: sha256sum $N | $GPG --clearsign
SHA256SUMS.asc :: (echo '- of today:'; sha256sum --tag $N) | $GPG --clearsign | sed 's/$/\r/'
SHA256SUMS :: sha256sum $N | $GPG --clearsign | sed '/BEGIN PGP SIGNATURE/,$d' :: refused
B3SUMS :: b3sum $N
XXH64SUMS :: xxhsum $N
XXH3SUMS :: xxhsum -H3 $N
XXH128SUMS :: xxhsum -H2 --tag $N
XXH32SUMS :: xxhsum -H0 $N
hashes.txt :: xxhsum --tag $N
hashes.txt :: xxhsum -H0 --tag --little-endian $N :: refused
MD5SUMS :: md5deep $N
MD5SUMS :: md5deep -l $N
md5deep.txt :: md5deep -z $N
SHA256SUMS :: sha256deep -l -z $N
hashes.txt :: sha256deep -z $N
SHA256SUMS :: sha256deep -k $N
SHA256SUMS :: sha256deep -l -0 $N
SHA256SUMS :: sha256deep -l -t $N
hashes.txt :: hashdeep $N
hashdeep.txt :: hashdeep -l $N
hashes.txt :: hashdeep -l -c sha1 $N
hashes.txt :: hashdeep -l -c md5,sha1,sha256,tiger,whirlpool $N
hashes.txt :: hashdeep -l -c whirlpool $N :: unknown
checksums.txt :: hashdeep -d $N | sed '/<creator/,/<.creator>/d' :: refused
x.sfv :: rhash $N :: weak
hashes.txt :: rhash --sfv $N :: weak
hashes.txt :: rhash --sha256 $N
hashes.txt :: rhash --sha256 --bsd $N
hashes.txt :: rhash --sha256 --md5 $N
hashes.txt :: rhash --sha256 --md5 --bsd $N
hashes.txt :: rhash --sha256 --uppercase $N
hashes.txt :: rhash --md5 --crc32 $N
x.crc32 :: rhash --crc32 --simple $N :: weak
hashes.txt :: rhash --crc32 --bsd $N :: weak
SHA3SUMS :: rhash --sha3-256 $N
hashes.txt :: rhash --whirlpool --bsd $N :: unknown
x.blake2s :: rhash --blake2s $N
checksums.txt :: rhash --magnet $N :: refused
x.sfv :: cksfv $N :: weak
hashes.txt :: cksfv $N :: weak
SHA256SUMS :: rclone hashsum SHA256 .
SHA256SUMS :: rclone hashsum --base64 SHA256 .
hashes.txt :: rclone hashsum --base64 SHA1 .
MD5SUMS :: rclone md5sum .
crc32sums.txt :: rclone hashsum CRC-32 . :: weak
checksums.txt :: rclone hashsum CRC-32 . :: refused
"""

_HEX = {
    each: {name: hashlib.new(each, data).hexdigest() for name, data in FILES.items()}
    for each in ("md5", "sha256")
}
_UPPER = {name: digest.upper() for name, digest in _HEX["sha256"].items()}


def _windows(name: str) -> str:
    return "C:\\data\\run 7\\" + name.replace("/", "\\")


def _wide(text: str) -> bytes:
    return b"\xff\xfe" + text.replace("\n", "\r\n").encode("utf-16-le")


class Dialect(NamedTuple):
    """A list: what it is called, what writes it, which version wrote it, its bytes, its worth."""

    name: str
    writer: str
    version: str
    data: bytes
    worth: str


DOCUMENTED = [
    # https://learn.microsoft.com/powershell/module/microsoft.powershell.utility/get-filehash
    Dialect(
        "hashes.txt",
        "Get-FileHash | Format-List > hashes.txt",
        "",
        _wide(
            "\n\n"
            + "\n\n".join(
                f"Algorithm : SHA256\nHash      : {digest}\nPath      : {_windows(name)}"
                for name, digest in _UPPER.items()
            )
            + "\n\n\n\n"
        ),
        PROVEN,
    ),
    Dialect(
        "hashes.txt",
        "Get-FileHash > hashes.txt",
        "",
        _wide(
            f"\n{'Algorithm':15} {'Hash':70} Path\n{'---------':15} {'----':70} ----\n"
            + "".join(f"{'SHA256':15} {each:70} {_windows(n)}\n" for n, each in _UPPER.items())
        ),
        PROVEN,
    ),
    # https://www.openssl.org/docs/man3.0/man1/openssl-dgst.html, as versions 3.0 to 3.5 name it
    Dialect(
        "hashes.txt",
        "openssl dgst",
        "3.2",
        "".join(f"SHA2-256({n})= {each}\n" for n, each in _HEX["sha256"].items()).encode(),
        PROVEN,
    ),
    # The same forms with the digests' files of the BSDs: `md5 -r`, and `md5` by itself
    Dialect(
        "MD5SUMS",
        "md5 -r",
        "FreeBSD",
        "".join(f"{each} {n}\n" for n, each in _HEX["md5"].items()).encode(),
        PROVEN,
    ),
    Dialect(
        "CHECKSUM.MD5",
        "md5",
        "FreeBSD",
        "".join(f"MD5 ({n}) = {each}\n" for n, each in _HEX["md5"].items()).encode(),
        PROVEN,
    ),
]


def recorded() -> list[Dialect]:
    """Return what is recorded, in the order of the table."""
    kept = json.loads(_DATA.read_text())
    dialects = []
    for line in filter(None, _RECORDED.split("\n")):
        name, command, *worth = line.split(" :: ")
        version, text = kept[command]
        data = text.encode("latin-1")
        dialects.append(Dialect(name, command, version, data, worth[0] if worth else PROVEN))
    return dialects


def write_files(root: Path) -> None:
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def _version_of(tool: str) -> str:
    option = {"openssl": "version", "cksfv": "-h"}.get(tool, "--version")
    words = [tool, "-v" if tool.endswith("deep") else option]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    version = (said.stdout + said.stderr).strip().partition("\n")[0]
    return version if version[:1].isalpha() else f"{tool} {version}"


def main() -> None:
    kept = json.loads(_DATA.read_text()) if _DATA.is_file() else {}
    new, place = {}, tempfile.mkdtemp(prefix="dialects-")
    gpg = f"gpg -q --batch --homedir {place}/gnupg --pinentry-mode loopback --passphrase ''"
    environment = {**os.environ, "N": "", "GPG": gpg, "RCLONE_CONFIG": "/dev/null"}
    try:
        root = Path(place, "set")
        write_files(root)
        Path(place, "gnupg").mkdir(mode=0o700)
        subprocess.run(f"{gpg} --quick-gen-key a@example.org", shell=True, check=True)
        for line in filter(None, _RECORDED.split("\n")):
            command = line.split(" :: ")[1]
            words = (word for word in command.split() if word not in _NOT_TOOLS)
            tool = "gpg" if "$GPG" in command else next(filter(shutil.which, words))
            script = command.replace("$N", "a.bin 'sub/b c.bin'")
            done = subprocess.run(
                ["bash", "-c", script], cwd=root, env=environment, capture_output=True, check=False
            )
            if done.stdout and done.returncode == 0:
                new[command] = [_version_of(tool), done.stdout.decode("latin-1")]
            else:
                new[command] = kept[command]
    finally:
        subprocess.run(["gpgconf", "--homedir", f"{place}/gnupg", "--kill", "all"], check=False)
        shutil.rmtree(place)
    _DATA.write_text(json.dumps(new, indent=1) + "\n")


if __name__ == "__main__":
    main()
