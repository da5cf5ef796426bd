"""The normal distribution, rounded to whole numbers."""

from __future__ import annotations

import math

from penstock.compiler.jit import jit


@jit
def cell(offset, sd):
    """The probability that a normal variable rounds to a whole number at this offset from its mean."""
    far = abs(offset)
    root = sd * math.sqrt(2.0)
    return 0.5 * (math.erfc((far - 0.5) / root) - math.erfc((far + 0.5) / root))
