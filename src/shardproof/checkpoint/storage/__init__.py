"""Keep checkpoints in a directory, or in what fsspec opens."""
