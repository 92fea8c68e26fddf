"""`python -m tests.benchmarks.large`: a database as it is after months, and what everything takes in it."""
