"""The same figures as measure's torch form, for CPUs, in one pass over blocks of tokens that fit a first-level cache.

Compiled by numba. In the data's way: bits and token are the mathematics of one token; columns, sums, counts and rules
are the stages of a block; tokens is the pass over all blocks of a chunk of sequences; sequences is what belongs to
whole sequences, routing what is compared of experts; bands puts rows of the catalogue into numbers; batch cuts a batch
into parts, parts has what all batches of a kind share, rooms the memory for it, held what of that compiled code takes;
measured runs a part chunk by chunk, totals finishes what that comes to; results says where it lies, tables what it is
called, and summarise moves it into a summary; evaluate answers what is not stored, with detail per sequence and per
token. It knows no HTTP, no database and no settings, and nothing here compiles unasked.
"""
