"""Live batches of an engine as case files: `from inputmeta.capture import Capture`."""

from inputmeta.conformance.capture import Capture, include_dir

__all__ = ["Capture", "include_dir"]
