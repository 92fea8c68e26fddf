"""Several processes on one port: a supervisor that hands connections out, and workers that serve them."""
