"""What the client of the Hugging Face Hub leaves on a disk: its cache, and local directories."""
