"""What an adapter of an engine is made of.

An adapter has the engine build (:meth:`Adapter.call`, the only place that touches it) and says what its arrays mean in
the specification's fields (:meth:`Adapter.translated`, which never touches it). So recorded arrays test a translation
where the engine is not installed (:mod:`inputmeta.conformance.engines.recorded`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.engines import packages
from inputmeta.conformance.subjects.base import Capabilities, Result

Raw = Mapping[str, "np.ndarray | int | bool"]
"""What an engine gave for one batch, by names of its own: arrays on the host (copies of tensors), plain scalars."""


class Adapter:
    """A public engine as a subject; see :class:`inputmeta.conformance.subjects.base.Subject`.

    A subclass sets the three class variables and has :meth:`load`, :meth:`call` and :meth:`translated`. What it does
    not build it leaves to conditions of its ``capabilities``; what these cannot say, ``call`` raises as Unsupported.
    """

    subject: ClassVar[str]
    """Its name on the command line, and that of its entry point."""
    package: ClassVar[str]
    """Its distribution: a key of :data:`inputmeta.conformance.engines.packages.PACKAGES`."""
    capabilities: Capabilities
    """A class variable, too: a replay needs no instance."""

    def __init__(self, version: str | None = None) -> None:
        """Load a release, the first pinned one if none is named.

        Raises:
            SubjectError: it is not here, or not what it needs.
        """
        self.version = packages.use(self.package, version)
        self.name = f"{self.subject}=={version}" if version else self.subject
        self.load()

    @classmethod
    def preload(cls, version: str | None = None) -> None:
        """Import what is slow to import, torch here, for all workers to be forked after it: no builder is made.

        An adapter of more than that adds to it, as :meth:`load` of the same release would import it.
        """
        packages.use(cls.package, version)
        if "torch" in packages.PACKAGES[cls.package].given:
            import_module("torch")

    def load(self) -> None:
        """Import the engine's builders and keep them on ``self``."""
        raise NotImplementedError

    def call(self, request: Request) -> Raw:
        """What the engine builds for a batch, as it is. Raises Unsupported for a batch that it does not build."""
        raise NotImplementedError

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The specification's fields out of what the engine gave; no engine is needed."""
        raise NotImplementedError

    def reset(self) -> None:
        """Of one that allocates: forget every request; see
        :meth:`inputmeta.conformance.subjects.base.AllocatingSubject.reset`.
        """

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        return self.translated(request, self.call(request))
