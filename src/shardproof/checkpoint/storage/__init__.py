"""Where checkpoints are kept: a directory, or what fsspec opens."""
