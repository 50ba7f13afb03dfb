"""Formats of which each shard holds many samples, and an index, a list or names say which."""

from shardproof.formats._format import Format

MDS = Format.of_module(
    "samples.mds",
    description="samples of MosaicML Streaming: MDS, JSON lines or separated values",
    manifest_file="index.json",
    beside=("*/index.json",),
    marks=("index.json",),
    only_its_own=r"(?m)^shard\.\d{5}\.[\w.]+$",
    states_digests=True,
    complete="the size of each file; for MDS, the number of samples and their offsets; for zstd, "
    "gz and bz2, that the file begins and ends as such",
    valid="each digest that the index states; by default Streaming writes none",
    blind_spots="changed samples without a digest; any bytes of br and snappy, which have no "
    "markers",
)
LITDATA = Format.of_module(
    "samples.litdata",
    description="chunks of LitData",
    manifest_file="index.json",
    marks=("index.json",),
    only_its_own=r"(?m)^chunk-\d+-\d+\.[\w.]+$",
    complete="the size of each chunk, the number of samples and their offsets; for chunks in "
    "zstd, that the blocks reach the end",
    blind_spots="changed samples",
)
ARROW = Format.of_module(
    "samples.arrow",
    description="datasets that the `datasets` library saved to disk",
    manifest_file="state.json",
    beside=("dataset_dict.json", "*dataset_info.json", "*state.json", "*.lock", "*cache-*.arrow"),
    marks=("state.json", "dataset_dict.json"),
    suffixes=(".arrow",),
    only_its_own=r"(?m)^data-\d{5}-of-\d{5}\.arrow$",
    includes=("datasets-cache",),
    complete="the beginning and the end of each file: a footer, or the marker that ends a stream; "
    "that dataset_info.json, which describes the rows, can be read",
    blind_spots="changed rows; sizes and counts, which the format does not record",
)
DATASETS_CACHE = Format.of_module(
    "samples.datasets_cache",
    description="datasets that the `datasets` library prepared in its cache, or one of them",
    manifest_file="dataset_info.json",
    further_parts=("*/dataset_info.json",),
    beside=("*.lock", "downloads/*", "CACHEDIR.TAG"),
    suffixes=(".arrow", ".lock", "dataset_info.json"),
    near=("*_builder.lock", "*_[0-9]*.[0-9]*.[0-9]*_*.lock"),
    complete="the marker at the end of each stream, also of what `map` cached; at every level, "
    "that each shard of each split exists, and that no preparation was killed",
    blind_spots="changed rows; what `map` cached and somebody removed",
)
ENERGON = Format.of_module(
    "samples.energon",
    description="samples in tar archives, prepared by Megatron Energon",
    manifest_file=".nv-meta/.info.json",
    further_parts=(".nv-meta/*",),
    beside=("*.tar.idx",),
    marks=(".nv-meta",),
    complete="the first headers and the end marker of each archive; that its index has as many "
    "entries as the archive has samples, and the last one is where the index says; that one file "
    "names the class of samples, and one the splits",
    valid="the checksum of each gzip archive, all headers of each uncompressed one",
    blind_spots="changed samples, except in gzip archives; which shards the splits name",
    includes=("webdataset",),
)
WIDS = Format.of_module(
    "samples.wids",
    description="samples in tar archives, listed by an index for random access",
    manifest_file="*.json",
    marks=("shardindex.json",),
    suffixes=(".json",),
    states_digests=True,
    complete="sizes that the index states; the first headers and the end marker of each archive",
    valid="MD5 digests that the index states; without one, the checksums and headers in the "
    "archive",
    blind_spots="archives that the index lists by a remote address, if no copy is here",
    includes=("webdataset",),
)
PARQUET = Format.of_module(
    "samples.parquet",
    description="parquet files, also in folders such as `y=2024`: listed by `_metadata`, numbered "
    "such as `-00003-of-00042`, or neither; `.pq`, `.parq` and `.parquet.gzip` by their magic",
    manifest_file="*.parquet",
    beside=(
        *("dataset_info.json", "dataset_infos.json", "README.md", ".gitattributes"),
        *("_metadata", "_common_metadata", "_SUCCESS", "*.crc"),
    ),
    suffixes=(
        *(".parquet", ".parq", ".pq", ".crc", "_metadata"),
        *(".brotli", ".gz", ".gzip", ".lz4", ".snappy", ".zstd"),
    ),
    folders=("*=*", "chunk-[0-9]*"),
    complete="the footer of each file; that every column chunk is before it; that the row groups "
    "have as many rows as it and `_metadata` state, and the splits as many as dataset_info.json "
    "states; that no job was killed before it committed (`_temporary`)",
    valid="the CRC-32 of each page that has one (`write_page_checksum=True`), and of each 512 "
    "bytes if Spark left a `.crc` file; no file as a whole",
    blind_spots="changed values without checksums; changed page headers; missing files, unless "
    "`_metadata`, a remaining `.crc` file or a name implies them; encrypted footers",
)
LEROBOT = Format.of_module(
    "samples.lerobot",
    description="episodes of robots in parquet and videos, as LeRobot 2 and 3 write them",
    manifest_file="meta/info.json",
    further_parts=("meta/*",),
    beside=("README.md", ".gitattributes", "images/*"),
    marks=("meta/info.json",),
    complete="the footer of each parquet file, and the boxes of each MP4 video up to its end; that "
    "there are as many rows as meta/info.json states; of version 2, also that the files of each "
    "episode exist",
    blind_spots="changed values; for version 3, a missing video",
)
MEGATRON = Format.of_module(
    "samples.megatron",
    description="tokens in Megatron-LM's indexed datasets: pairs of .bin and .idx",
    manifest_file="*.idx",
    suffixes=(".idx",),
    near=("*.bin",),
    complete="the size of each file, as the index implies it; that the documents cover all "
    "sequences",
    blind_spots="changed tokens; missing pairs; data without an index, unless its name is like "
    "those of other pairs; data with sequences in another order than Megatron's builder writes",
)
ZARR = Format.of_module(
    "samples.zarr",
    description="arrays of zarr, version 2 and 3",
    manifest_file="zarr.json",
    further_parts=("*zarr.json", "*.zarray", "*.zgroup", "*.zattrs", "*.zmetadata"),
    marks=("zarr.json", ".zgroup", ".zarray", ".zmetadata"),
    complete="the size of each chunk that is not compressed, the header of blosc, the ends of "
    "zstd, gzip, zlib and bz2; the checksum of the index of each shard; all metadata, consolidated "
    "ones too; that no chunks lie in a folder that nothing describes as an array",
    blind_spots="missing chunks, which zarr reads as the fill value; changed values; chunks inside "
    "of shards; indices of more than 65536 chunks, at the begin of a shard, or without a checksum",
)
FORMATS = (MDS, LITDATA, ARROW, DATASETS_CACHE, ENERGON, WIDS, PARQUET, LEROBOT, MEGATRON, ZARR)
