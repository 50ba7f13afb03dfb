"""Convert checkpoints to files of safetensors, and back."""
