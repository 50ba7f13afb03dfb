"""Formats of which each shard holds many samples, and a list or an index names the shards."""

from shardproof.formats._format import Format

MDS = Format.of_module(
    "samples.mds",
    name="mds",
    description="samples of MosaicML Streaming: MDS, JSON lines or separated values",
    manifest_file="index.json",
    beside=("*/index.json",),
    marks=("index.json",),
    only_its_own=r"(?m)^shard\.\d{5}\.[\w.]+$",
    states_digests=True,
    complete="the size of each file; of MDS how many samples it has, and where they are; of "
    "zstd, gz and bz2 that they begin and end so",
    valid="each digest that the index states; by default Streaming writes none",
    blind_spots="changed samples where no digest is stated; any bytes in br and snappy, which "
    "have no marks",
)
LITDATA = Format.of_module(
    "samples.litdata",
    name="litdata",
    description="chunks of LitData",
    manifest_file="index.json",
    marks=("index.json",),
    only_its_own=r"(?m)^chunk-\d+-\d+\.[\w.]+$",
    complete="the size of each chunk, how many samples it has and where they are; of "
    "compressed chunks that the blocks of zstd reach to the end",
    valid="nothing more: the format states no digest; seal it",
    blind_spots="changed samples",
)
ARROW = Format.of_module(
    "samples.arrow",
    name="arrow",
    description="data sets that `datasets` saved to a disk",
    manifest_file="state.json",
    beside=("dataset_dict.json", "*dataset_info.json", "*state.json", "*.lock", "*cache-*.arrow"),
    marks=("state.json", "dataset_dict.json"),
    only_its_own=r"(?m)^data-\d{5}-of-\d{5}\.arrow$",
    complete="the begin of each file and its end: a footer, or the mark that ends a stream; that "
    "the description of the rows is there",
    valid="nothing more: the format states no digest; seal it",
    blind_spots="changed rows; sizes and counts, which are not written down",
)
ENERGON = Format.of_module(
    "samples.energon",
    name="energon",
    description="samples in tar archives that Megatron Energon prepared",
    manifest_file=".nv-meta/.info.json",
    further_parts=(".nv-meta/*",),
    beside=("*.tar.idx",),
    marks=(".nv-meta",),
    complete="the first headers of each archive, and the mark at its end; as many entries of its "
    "index as it has samples, the last of them where the index says; that a file names the class "
    "of samples, and one the splits",
    valid="the checksum of each archive in gzip, all headers of each that is not compressed",
    blind_spots="changed samples, but for archives in gzip; which shards the splits name",
    includes=("webdataset",),
)
WIDS = Format.of_module(
    "samples.wids",
    name="wids",
    description="samples in tar archives, which an index for random access lists",
    manifest_file="*.json",
    marks=("shardindex.json",),
    suffixes=(".json",),
    states_digests=True,
    complete="sizes that the index states; the first headers of each archive, the mark at its end",
    valid="MD5 digests that the index states; else what archives prove by themselves",
    blind_spots="archives that are listed by an address elsewhere, and of which no copy is here",
    includes=("webdataset",),
)
PARQUET = Format.of_module(
    "samples.parquet",
    name="parquet",
    description="parquet files: those that `_metadata` names, with `-00003-of-00042` in their "
    "names, or without",
    manifest_file="*.parquet",
    beside=(
        *("dataset_info.json", "dataset_infos.json", "README.md", ".gitattributes"),
        *("_metadata", "_common_metadata", "_SUCCESS", "*.crc"),
    ),
    suffixes=(".parquet", ".crc", "_metadata"),
    complete="that each file has its footer, every column chunk lies before it, and row groups "
    "have as many rows as it, and `_metadata`, say; as many rows in a split as dataset_info.json "
    "states; that no job was killed before it committed (`_temporary`)",
    valid="the CRC-32 of each page that has one (`write_page_checksum=True`), and of each 512 "
    "bytes where Spark left a `.crc` beside; no file as a whole",
    blind_spots="changed values without checksums, changed headers of pages; files that are gone, "
    "where neither `_metadata`, a `.crc` that is left nor a name tells of them; encrypted footers",
)
FORMATS = (MDS, LITDATA, ARROW, ENERGON, WIDS, PARQUET)
