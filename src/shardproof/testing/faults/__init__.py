"""What goes wrong: with a file, with calls to the file system, with a server."""
