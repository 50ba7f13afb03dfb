"""Which row comes when, to which rank: arithmetic, without a look at a file."""
