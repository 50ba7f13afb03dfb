"""Formats of a model's weights: safetensors, torch's distributed checkpoints."""
