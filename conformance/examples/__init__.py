"""One worked example of each way to bring a subject along; README.md says which to copy."""
