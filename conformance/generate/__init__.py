"""Test generation: draws of batches at the borders of the formulas, and what they visited.

``draw_case(RandomDraw(random), profile)`` draws a ``Case``, and ``batches(profile)`` is the strategy of Hypothesis for
it; ``features(case)`` names the border conditions it visits; ``Coverage`` counts them.
"""

from .batches import batches, draw_case
from .coverage import Coverage, CoverageRow
from .draws import RandomDraw
from .features import FEATURES, Feature, features
from .profile import Profile
from .scales import NothingToDrawError, drawable

__all__ = [
    "FEATURES",
    "Coverage",
    "CoverageRow",
    "Feature",
    "NothingToDrawError",
    "Profile",
    "RandomDraw",
    "batches",
    "draw_case",
    "drawable",
    "features",
]
