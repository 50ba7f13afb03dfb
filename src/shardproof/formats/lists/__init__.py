"""Formats that list digests of any files: SHA256SUMS and its kin, BagIt, DVC, Croissant, ..."""

from shardproof.formats._format import Format, later

CROISSANT = Format.of_module(
    "lists.croissant",
    description="files that Croissant metadata beside them describe",
    manifest_file="croissant.json",
    beside=("metadata.json",),
    marks=("croissant.json",),
    states_digests=True,
    complete="the size of each file, if it is stated in bytes",
    valid="the SHA-256 and the MD5 of each file, unless it is a placeholder: an address, a word, "
    "zeros",
    blind_spots="file sets, which have no digests; files in archives or at other addresses",
)
MODEL_SIGNING = Format.of_module(
    "lists.model_signing",
    description="a model with a signature of OpenSSF's model_signing",
    manifest_file="model.sig",
    read_signed=later("formats.lists.model_signing", "read_manifest"),
    marks=("model.sig",),
    states_digests=True,
    complete="that every file was signed, and that the list is the signed one; sizes, if parts of "
    "files were signed",
    valid="the digest of each file, or of all its parts; with `--against KEY.pem`, as at every "
    "level, that the owner of the key signed the list, and that there is no file beyond it",
    blind_spots="without a key, who signed it, and hidden files; who issued a certificate, and "
    "models that Sigstore signed without a key: `model_signing verify` checks these",
    includes=("safetensors",),
)
BAGIT = Format.of_module(
    "lists.bagit",
    description="a BagIt bag (RFC 8493)",
    manifest_file="manifest-*.txt",
    further_parts=("tagmanifest-*.txt",),
    beside=("bagit.txt", "bag-info.txt", "fetch.txt"),
    marks=("bagit.txt",),
    suffixes=(".txt",),
    states_digests=True,
    complete="that every list of the payload names every file below `data`; the bytes and the "
    "number of files that Payload-Oxum states",
    valid="every digest of each file, of the payload and of the tags",
    blind_spots="tag files that no list names; the sizes in fetch.txt",
)
DVC = Format.of_module(
    "lists.dvc",
    description="files and folders that DVC tracks, or that stages in `dvc.lock` wrote",
    manifest_file="*.dvc",
    further_parts=("dvc.lock", "dvc.yaml", ".dvc/config", ".dvcignore"),
    beside=(".gitignore", ".dvc/*"),
    suffixes=(".dvc", ".lock"),
    states_digests=True,
    complete="the size of each file that is tracked by itself; that the list of each folder "
    "exists and has the digest in its name; for a folder that is not cached, the number of files; "
    "that each stage of `dvc.yaml` ran to its end",
    valid="the MD5 of each file, if DVC 3 wrote it",
    blind_spots="what DVC does not track yet; files that the list of a folder does not name; "
    "digests of DVC 2, which changed the line ends of texts first; folders that DVC does not "
    "cache; stages in folders whose names are templates; DVC files in folders below; MD5 detects "
    "accidents only",
    only_here="run `dvc pull`, and check what it makes",
)
DIGESTS = Format(
    name="digests",
    recognizes=later("formats._reading", "recognizes"),
    read_manifest=later("formats._reading", "read_lists"),
    description="any files, with a list of their digests, as sha256sum and its kin write it",
    manifest_file="*SUMS",
    beside=("*sums", "*sum.txt", "*sums.txt", "*.sha256", "*.sha512", "*.md5", "*.b3"),
    complete="that no two lists state different digests for a file; sizes, if a list has some",
    valid="the digest of each file; MD5, SHA-1 and xxHash detect accidents only. A CRC-32 is "
    "compared too, but is no proof",
    blind_spots="files that no line names, even if a list was cut between two lines; who signed a "
    "list by PGP",
)
FORMATS = (CROISSANT, MODEL_SIGNING, BAGIT, DVC, DIGESTS)
