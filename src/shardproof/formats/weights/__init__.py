"""Formats of a model's weights: safetensors, torch's distributed checkpoints."""

from shardproof.formats._format import Format

SAFETENSORS = Format.of_module(
    "weights.safetensors",
    name="safetensors",
    description="weights of a model, alone or in several files with an index",
    manifest_file="*.safetensors.index.json",
    beside=("*.safetensors.index.*.json", "*.json", "*.md", "*.txt", "*.model", "*.jinja"),
    marks=("model_index.json",),
    suffixes=(".safetensors", ".json"),
    complete="that each header is sound, its tensors reach just to the end of the file, and every "
    "tensor is where the index says, without which `model-00001-of-00002` is not whole",
    valid="nothing more: the format states no digest; seal it",
    blind_spots="changed values of tensors; a file that no index names and no number implies; the "
    "total size that an index states, which is often that of other files",
)
TORCH_DCP = Format.of_module(
    "weights.torch_dcp",
    name="torch-dcp",
    description="distributed checkpoints of PyTorch",
    manifest_file=".metadata",
    beside=("__*.metadata",),
    marks=(".metadata", ".metadata.tmp"),
    complete="that each file ends where its last item does, and no two items share bytes",
    valid="nothing more: the format states no digest",
    blind_spots="changed values of tensors; a file that is longer than its items where they are "
    "compressed or in safetensors; what else the metadata would do to a program that unpickles it",
)
FORMATS = (SAFETENSORS, TORCH_DCP)
