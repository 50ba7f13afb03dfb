"""Formats of a model's weights: safetensors, GGUF, ONNX, files and checkpoints of torch."""

import re

from shardproof.formats._flat import flat
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
    "has an index; the archives of torch that transformers and accelerate save beside a model",
    blind_spots="changed values of tensors; a file that no index and no number implies; the total "
    "size in the index, which is often that of other files",
)
TORCH_DCP = Format.of_module(
    "weights.torch_dcp",
    description="distributed checkpoints of PyTorch",
    manifest_file=".metadata",
    beside=("__*.metadata",),
    marks=(".metadata", ".metadata.tmp"),
    only_its_own=r"(?m)^__\d+_\d+\.distcp$",
    complete="that each file ends where its last item ends, and that no two items share bytes",
    blind_spots="changed values of tensors; surplus bytes in a file, if its items are compressed "
    "or in safetensors; what else the metadata would do to a program that unpickles them",
)
ONNX = Format.of_module(
    "weights.onnx",
    description="models of ONNX, and the files beside them that have their tensors",
    manifest_file="*.onnx",
    beside=("*.json", "*.md", "*.txt", "*.model", "*.jinja"),
    suffixes=(".onnx",),
    yields=True,
    complete="that the fields of each model end where the file ends; that each file of tensors is "
    "as long as the models imply",
    blind_spots="changed values",
)
TORCH = Format.of_module(
    "weights.torch",
    description="what `torch.save` wrote: `pytorch_model*.bin` of transformers, with an index or "
    "without, and folders of .pt, .pth, .ckpt and .pth.tar",
    manifest_file="*.bin.index.json",
    beside=("*.bin.index.*.json", "*.json", "*.md", "*.txt", "*.model", "*.jinja"),
    suffixes=(".bin", ".pt", ".pth", ".ckpt", ".tar", ".json"),
    includes=("gguf", "json-lines"),
    yields=True,
    complete="that the directory at the end of each archive is whole, and each member where it "
    "says; that every tensor that the index names is named in its file; that a set such as "
    "`pytorch_model-00001-of-00002` has an index. Nothing is unpickled",
    valid="the CRC-32 of each member, unless torch left them out; no file as a whole",
    blind_spots="what a pickle would do; bytes between members; all but the first bytes of files "
    "that are no archives, as torch wrote them before 1.6; a file that no index and no number "
    "implies",
)
GGUF = flat(
    "gguf",
    (".gguf",),
    probe="gguf",
    job_names=re.compile(r".*\.gguf", re.DOTALL),
    first=1,
    yields=True,
    description="models in GGUF, as llama.cpp reads them, in one file or in parts",
    beside=("*.json", "*.md", "*.txt", "*.jinja", "*.imatrix"),
    includes=("json-lines",),
    complete="the header of each file; that its tensors end where the file ends; that a part is "
    "the one, of as many, that its name says",
    blind_spots="changed values of tensors; a file that no number implies; files of other versions "
    "than 2 and 3, and big-endian ones",
)
FORMATS = (SAFETENSORS, TORCH_DCP, TORCH, GGUF, ONNX)
