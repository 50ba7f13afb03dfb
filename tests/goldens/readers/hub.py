"""What Hugging Face's client downloaded."""
