"""Dump files of training frameworks, and our own, as batches to post: monitoring with no change to the trainer.

One module a format turns files into records; the others find the files, post the records in step order, remember what
the service has acknowledged and say how far they are. Numpy and the standard library alone, but for slime's dumps,
which are torch files.
"""
