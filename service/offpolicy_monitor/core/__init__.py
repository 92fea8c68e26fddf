"""The mathematics of off-policyness in torch: tensors in, tensors out; no settings, HTTP, database or device choice.

Whoever takes tensors looks at their shapes and dtypes first, and says what it raises. What takes gaps, groups and
decisions alone has nothing to look at: they did so themselves when they were made.

ragged (sums over sequences) and order (of their tokens), divergences and columns (per token), gap and advantages (the
columns of all gaps), gap_sums (what figures are made of), scores, corrections and decision (what rules compare, decide
and add up to), outward and second_moment (of tokens that move further out; the cut of M2PO), signature, routing,
differences (of log-probs that are no gap's), density, histogram and cells (bins and counts), checks (the doors), device
(what follows from it).
"""
