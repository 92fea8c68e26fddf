"""A two-layer Qwen2 of random weights and a tokenizer of characters, built here: no hub is asked."""

from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CHARACTERS = "0123456789+=. "


def tokenizer(characters: str = CHARACTERS) -> PreTrainedTokenizerFast:
    """One token a character."""
    vocabulary = {token: number for number, token in enumerate(("<pad>", "<eos>", *characters))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")


def model(words: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """About 20,000 random parameters."""
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    ends: dict[str, Any] = {
        "pad_token_id": words.pad_token_id,
        "eos_token_id": words.eos_token_id,
        "bos_token_id": None,
    }
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), tie_word_embeddings=False, **sizes, **heads, **ends))
