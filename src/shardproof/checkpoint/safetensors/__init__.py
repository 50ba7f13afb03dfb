"""The same tensors in files of safetensors, and back."""
