"""CTranslate2: each weight sync converts the policy anew, in int8 or float32; answers and log-probs come out.

https://opennmt.net/CTranslate2; made for 4.8. It reports raw log-probs: of the model's own distribution, whatever the
temperature and the nucleus that it samples with.
"""

import copy
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import ctranslate2
from ctranslate2.converters.transformers import LlamaLoader

from offpolicy_monitor.demo.engines.engine import Checkpoint, Options, Request, Written
from offpolicy_monitor.demo.engines.llama import Llama
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.task import END, PAD

TYPES: Final = {"int8": "int8", "exact": "float32"}


class CTranslate2:
    """One `Generator`, made anew by each `load`: int8 rounds weights by output channel, and activations."""

    def __init__(self, policy: Policy, options: Options) -> None:
        assert isinstance(policy, Llama)
        self.model, self.type = policy.model, TYPES[options.precision]
        self.words = [str(token) for token in range(policy.shape.vocabulary)]
        ctranslate2.set_random_seed(options.seed)
        self.load(policy.checkpoint())

    def load(self, checkpoint: Checkpoint) -> None:
        """Convert these weights, and read them back."""
        model = copy.deepcopy(self.model)  # the converter takes a model apart
        model.load_state_dict(checkpoint)
        spec = LlamaLoader().get_model_spec(model)
        spec.register_vocabulary(self.words)
        spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = self.words[-1], str(END), str(PAD)
        spec.validate()
        spec.optimize(quantization=self.type)
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            self.generator = ctranslate2.Generator(folder, device="cpu", compute_type=self.type, intra_threads=1)

    def write(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Written]:
        """One answer to each prompt."""
        tokens: dict[int, list[int]] = defaultdict(list)
        log_probs: dict[int, list[float]] = defaultdict(list)

        def take(result: Any) -> bool:
            tokens[result.batch_id].append(result.token_id)
            log_probs[result.batch_id].append(result.log_prob)
            return False  # go on

        self.generator.generate_batch(
            [[self.words[token] for token in prompt] for prompt in prompts],
            max_length=request.most,
            sampling_topk=0,
            sampling_topp=request.top_p,
            sampling_temperature=request.temperature,
            end_token=[self.words[request.end]],
            include_prompt_in_result=False,
            return_scores=True,
            callback=take,
        )
        return [Written(tokens[index], log_probs[index]) for index in range(len(prompts))]

    def read(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> list[Sequence[float]]:
        """Scores of prompt and answer in one pass, of all tokens but the first."""
        whole = [
            [self.words[token] for token in (*prompt, *answer)] for prompt, answer in zip(prompts, answers, strict=True)
        ]
        found = self.generator.score_batch(whole)
        return [one.log_probs[len(prompt) - 1 :] for one, prompt in zip(found, prompts, strict=True)]
