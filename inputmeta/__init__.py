"""Conformance tests for the layer of an inference engine that builds attention metadata.

The subpackages are links to the folders that hold them: ``oracle/``, ``conformance/``, ``corpus/``, ``csrc/engine/``.
"""
