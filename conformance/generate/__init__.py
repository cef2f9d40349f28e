"""Test generation: Hypothesis strategies that draw batches at the borders of the formulas, and what they visited.

``batches(profile)`` draws a ``Case``; ``features(case)`` names the border conditions it visits; ``Coverage``
counts them.
"""

from .batches import batches
from .coverage import Coverage, CoverageRow
from .features import FEATURES, Feature, features
from .profile import Profile

__all__ = ["FEATURES", "Coverage", "CoverageRow", "Feature", "Profile", "batches", "features"]
