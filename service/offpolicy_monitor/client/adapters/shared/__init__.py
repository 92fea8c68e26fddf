"""What adapters share; each module says which kind of hook it is for."""
