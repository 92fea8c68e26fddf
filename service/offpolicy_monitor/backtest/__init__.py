"""Back-tests: what the rules would have told of a run whose figures somebody kept.

tables reads files into columns; peers says which of our figures another framework's metric is; figures makes of both
what rules look at; timeline has it judged step by step, as the service does; text and command are for people.
"""
