"""Llama: a policy that real engines can load, a small transformers model with the demo's interface.

Its heads have the demo's width / heads, of which vLLM wants 32 or more. It knows no engine.
"""

import torch
from torch import Tensor

from offpolicy_monitor.demo.engines.engine import Checkpoint
from offpolicy_monitor.demo.policy import Policy, Shape
from offpolicy_monitor.demo.task import END, PAD


class Llama(Policy):
    """The policy in the form of a Llama: rotary positions, RMS norms, gated perceptrons; float32."""

    def build(self, shape: Shape) -> None:
        """Make the model; its last token is BOS."""
        # Two seconds of a processor, which whoever only names this class does not spend.
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=shape.vocabulary,
                hidden_size=shape.width,
                intermediate_size=4 * shape.width,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                num_key_value_heads=shape.heads,
                max_position_embeddings=shape.prompt + shape.answer + 1,
                tie_word_embeddings=False,
                pad_token_id=PAD,
                eos_token_id=END,
                bos_token_id=shape.vocabulary - 1,
            )
        )

    def forward(self, tokens: Tensor, starts: Tensor, unseen: Tensor | None = None) -> Tensor:
        """Map tokens [B, L] and starts [B] to logits [B, L, V], as Policy does; positions count from `starts`."""
        column = torch.arange(tokens.shape[1])
        seen = column >= starts[:, None]
        seen = seen if unseen is None else seen & ~unseen
        positions = (column - starts[:, None]).clamp(min=0)
        answer = self.model(input_ids=tokens, attention_mask=seen.long(), position_ids=positions, use_cache=False)
        return answer.logits

    def checkpoint(self) -> Checkpoint:
        """The weights as they are now; a copy."""
        return {name: weight.detach().clone() for name, weight in self.model.state_dict().items()}
