"""The kinds of tables beyond the core figures: each module declares the rows of a kind and reads its figures."""
