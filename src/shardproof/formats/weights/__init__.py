"""Formats of a model's weights: safetensors, torch's distributed checkpoints."""

from shardproof.formats._format import Format

SAFETENSORS = Format.of_module(
    "weights.safetensors",
    description="weights of a model, in one file, or in several with an index",
    manifest_file="*.safetensors.index.json",
    beside=("*.safetensors.index.*.json", "*.json", "*.md", "*.txt", "*.model", "*.jinja"),
    marks=("model_index.json",),
    suffixes=(".safetensors", ".json"),
    complete="the header of each file; that its tensors end exactly where the file ends; that "
    "every tensor is in the file that the index names; that a set such as `model-00001-of-00002` "
    "has an index",
    blind_spots="changed values of tensors; a file that no index and no number implies; the total "
    "size in the index, which is often that of other files",
)
TORCH_DCP = Format.of_module(
    "weights.torch_dcp",
    description="distributed checkpoints of PyTorch",
    manifest_file=".metadata",
    beside=("__*.metadata",),
    marks=(".metadata", ".metadata.tmp"),
    complete="that each file ends where its last item ends, and that no two items share bytes",
    blind_spots="changed values of tensors; surplus bytes in a file, if its items are compressed "
    "or in safetensors; what else the metadata would do to a program that unpickles them",
)
FORMATS = (SAFETENSORS, TORCH_DCP)
