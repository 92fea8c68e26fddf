"""The demo trainer: a tiny policy that learns anagrams by GRPO on one core, and posts what a trainer would.

It talks to the service over HTTP alone, as any trainer does. This module imports nothing, so that the command line's
help stays quick; `demo.train.run_demo` runs it.
"""
