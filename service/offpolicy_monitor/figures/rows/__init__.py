"""The rows of the catalogue, one module for what a figure is of."""
