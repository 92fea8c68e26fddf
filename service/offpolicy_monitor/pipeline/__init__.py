"""The way of a request body through the service: admission, buffer, decode, measure, store.

rates       how much each run may send, where settings bound that
admission   bytes are admitted before they are read, first come first served
buffers     reusable memory for bodies, so that arrays are views over what the socket delivered
decoder     threads that decode, within a budget of memory
remembered  what this process has stored itself, so that the store need not be asked
device      the threads that measure; `turns`, which job is next and which cannot be done in time, and `thread_stack`,
            which of the threads takes it
helpers     the processes that measure small shards for these threads, while many come side by side
record      what is kept of a message, in the service and in a helper alike
writer      the one thread that writes to the database, many shards per transaction; or whoever brings one that is alone
rollouts    first halves of the two-phase form, bounded in bytes and in time
shards      the way of a shard: read, measured, stored
stages      all of these together, and evaluations between the shards

Nothing here knows HTTP; refusals are the values of `errors`.
"""
