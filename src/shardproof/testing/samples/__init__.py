"""Sample directories: described by one value, written, and judged by an oracle."""
