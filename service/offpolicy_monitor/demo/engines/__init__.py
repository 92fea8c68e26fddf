"""Real engines that sample for the demo: vLLM and CTranslate2, where they are installed.

`kinds` says which there are and what can be planted in each, and needs none of them. `engine` is what the demo asks of
one; `vllm` and `ct2` are the two; `llama` is the policy that both can load; `sampler` and `backend` join them with the
trainer. This module imports nothing.
"""
