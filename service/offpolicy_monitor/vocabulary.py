"""Names that every part shares, each said once: gaps, and the signs of an advantage. Depends on nothing."""

from typing import Final

#: mismatch = log pi_old - log mu; staleness = log pi - log pi_old; total = log pi - log mu.
GAPS: Final = ("mismatch", "staleness", "total")

#: Signs of A as what-if cells name them: `mixed` are sequences whose tokens differ, `unknown` is without advantages.
SIGNS: Final = ("negative", "zero", "positive", "mixed", "unknown")
#: Their indices.
NEGATIVE, ZERO, POSITIVE, MIXED, UNKNOWN = range(len(SIGNS))
