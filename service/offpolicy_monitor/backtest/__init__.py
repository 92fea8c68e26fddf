"""Back-tests: what the rules would have told of a run whose figures somebody kept.

tables reads files into columns; figures makes of them, by the table of peers, what rules look at; timeline has it
judged step by step, as the service does; text and command are for people.
"""
