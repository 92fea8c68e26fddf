"""The way of a request body through the service: admission, buffer, decode, measure, store.

admission   bytes are admitted before they are read, first come first served
buffers     reusable memory for bodies, so that arrays are views over what the socket delivered
turns       which job the device does next, and which it cannot do in time
workers     one bounded thread for each stage that computes
writer      the one thread that writes to the database, many shards a transaction
rollouts    first halves of the two-phase form, bounded in bytes and in time
stages      decode -> look up -> measure -> store, with what each takes

Nothing here knows HTTP; refusals are the values of `errors`.
"""
