"""Formats that list digests of any files: SHA256SUMS and its kin, BagIt, DVC, Croissant, ..."""

from shardproof.formats._format import Format, later

CROISSANT = Format.of_module(
    "lists.croissant",
    name="croissant",
    description="files that Croissant metadata describe, and that lie beside them",
    manifest_file="croissant.json",
    beside=("metadata.json",),
    marks=("croissant.json",),
    states_digests=True,
    complete="the size of each file, where it is stated in bytes",
    valid="the SHA-256 and the MD5 of each file, where it is no placeholder: an address, a word, "
    "zeros",
    blind_spots="file sets, which state no digest; files within archives or at other addresses",
)
MODEL_SIGNING = Format.of_module(
    "lists.model_signing",
    name="model-signing",
    description="a model with a signature of OpenSSF's model_signing",
    manifest_file="model.sig",
    read_signed=later("lists.model_signing", "read_manifest"),
    marks=("model.sig",),
    states_digests=True,
    complete="that no file is there that was not signed, and the list is the one that was; sizes, "
    "where parts of files were signed",
    valid="the digest of each file, or of all its parts; with `--against KEY.pem`, as each level, "
    "that the owner of the key signed the list, and nothing is there that was not signed",
    blind_spots="who signed it, and hidden files, without a key; who issued a certificate, and "
    "models that Sigstore signed without a key: `model_signing verify` proves these",
    includes=("safetensors",),
)
BAGIT = Format.of_module(
    "lists.bagit",
    name="bagit",
    description="a BagIt bag (RFC 8493)",
    manifest_file="manifest-*.txt",
    further_parts=("tagmanifest-*.txt",),
    beside=("bagit.txt", "bag-info.txt", "fetch.txt"),
    marks=("bagit.txt",),
    suffixes=(".txt",),
    states_digests=True,
    complete="that every file below `data` is listed, in every list of the payload; bytes and "
    "files as Payload-Oxum says",
    valid="each digest of each file, of the payload and of the tags",
    blind_spots="tag files that no list has; the sizes in fetch.txt",
)
DVC = Format.of_module(
    "lists.dvc",
    name="dvc",
    description="files and folders that DVC tracks, or stages in `dvc.lock` wrote",
    manifest_file="*.dvc",
    further_parts=("dvc.lock", "dvc.yaml", ".dvc/config", ".dvcignore"),
    beside=(".gitignore", ".dvc/*"),
    suffixes=(".dvc", ".lock"),
    states_digests=True,
    complete="the size of each file that is tracked alone; that the list of each folder is there, "
    "and is the one by its name; of a folder that is not cached how many files it has; that each "
    "stage of `dvc.yaml` has run to its end",
    valid="the MD5 of each file, where DVC 3 wrote it",
    blind_spots="what no file of DVC tracks yet; files beyond the list of a folder; digests of DVC "
    "2, which changed the line ends of texts first; folders that DVC does not cache; stages in "
    "folders whose names are templates, files of DVC in folders below; MD5 tells accidents only",
)
DIGESTS = Format.of_module(
    "lists.digests",
    name="digests",
    description="any files, and a list of their digests, as sha256sum writes it",
    manifest_file="*SUMS",
    beside=("*sums", "*sum.txt", "*sums.txt", "*.sha256", "*.sha512", "*.md5", "*.b3"),
    complete="that no two lists state different digests of a file; a list states no size",
    valid="the digest of each file; MD5, SHA-1 and xxHash only tell accidents",
    blind_spots="files that no line names, also where a list was cut between two lines",
)
FORMATS = (CROISSANT, MODEL_SIGNING, BAGIT, DVC, DIGESTS)
