"""The mathematics of off-policyness in torch: tensors in, tensors out; no settings, HTTP, database or device choice.

ragged (sums over sequences), divergences (per token), gap and advantages (the columns of one gap), gap_sums (what its
figures are made of), rules and decision (what each correction drops), histogram (the binning kernel).
"""
