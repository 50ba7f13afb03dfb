"""The format of a checkpoint: file names, headers, metadata, and the laws that they obey."""
