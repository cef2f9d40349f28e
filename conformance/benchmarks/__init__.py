"""Benchmarks: the engine against a vectorised numpy reference and against a memset of the bytes it writes."""
