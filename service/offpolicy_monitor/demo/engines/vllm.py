"""vLLM in this process: weights go in as a trainer's weight sync does it, answers and log-probs come out.

https://docs.vllm.ai; made for 0.32, CPU build. What its logging says below an error is not shown.
"""

import os
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from offpolicy_monitor.demo.engines.engine import Checkpoint, Options, Request, Written
from offpolicy_monitor.demo.engines.llama import Llama
from offpolicy_monitor.demo.policy import Policy

#: Read when vLLM is imported: in this process, on one core, nothing asked of the network, 1 GiB for keys and values.
for _name, _value in {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}.items():
    os.environ.setdefault(_name, _value)

from vllm import LLM, SamplingParams, TokensPrompt  # noqa: E402  reads the variables above

DTYPES: Final = {"bfloat16": "bfloat16", "exact": "float32"}
#: Number formats of cached keys and values by their significant bits, the leading one included.
CACHES: Final = {None: "auto", 4: "fp8_e4m3", 3: "fp8_e5m2"}


class Vllm:
    """One `LLM`. Prompts share no cache between requests: cached keys and values would be of older weights."""

    def __init__(self, policy: Policy, options: Options) -> None:
        assert isinstance(policy, Llama)
        shape = policy.shape
        with tempfile.TemporaryDirectory() as folder:
            policy.model.save_pretrained(folder)
            self.llm = LLM(
                folder,
                skip_tokenizer_init=True,
                dtype=DTYPES[options.precision],
                kv_cache_dtype=CACHES[options.cache_bits],
                logprobs_mode="raw_logprobs" if options.raw else "processed_logprobs",
                seed=options.seed,
                max_model_len=shape.prompt + shape.answer + 1,  # the one that reading writes
                enable_prefix_caching=False,
                enforce_eager=True,
                disable_log_stats=True,
                use_tqdm_on_load=False,
            )

    def load(self, checkpoint: Checkpoint) -> None:
        """Take weights by `reload_weights`, as trainers sync them."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(checkpoint.items())})

    def write(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Written]:
        """One answer to each prompt."""
        sampling = SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.most,
            stop_token_ids=[request.end],
            logprobs=0,  # of the sampled token alone
            detokenize=False,
        )
        asked = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
        return [_written(answer.outputs[0]) for answer in self.llm.generate(asked, sampling, use_tqdm=False)]

    def read(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> list[Sequence[float]]:
        """`prompt_logprobs` of prompt and answer, which come of the prefill; one token is written for nothing."""
        sampling = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        whole = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
        asked = [TokensPrompt(prompt_token_ids=row) for row in whole]
        found = self.llm.generate(asked, sampling, use_tqdm=False)
        return [
            _read(row, one.prompt_logprobs, len(prompt)) for row, one, prompt in zip(whole, found, prompts, strict=True)
        ]


def _read(tokens: Sequence[int], known: Any, first: int) -> list[float]:
    return [known[index][tokens[index]].logprob for index in range(first, len(tokens))]


def _written(output: Any) -> Written:
    tokens = list(output.token_ids)
    return Written(tokens, [known[token].logprob for token, known in zip(tokens, output.logprobs, strict=True)])
