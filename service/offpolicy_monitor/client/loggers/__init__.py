"""Loggers: the figures of each step, as the service has them, handed to where a team already looks.

    follow   asks for the steps of a run on a thread of its own, and hands each over once, in order
    names    what a figure is called there
    kinds    W&B, TensorBoard, MLflow, or a function: how a step is written to each

Nothing of a logger is imported: it is known by the object that was given.
"""
