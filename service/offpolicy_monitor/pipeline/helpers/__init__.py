"""Processes that read and measure small shards beside the service, so that the interpreter's lock of the service is
left to the event loop and to the thread that stores.

line     how values get from one process to another
parcel   what goes to such a process and what comes back
helper   what it does, shard by shard
nursery  the process that they are forks of, which has loaded the pass; it is started by `pool`, and knows no torch
pool     those that there are, as the service has them
"""
