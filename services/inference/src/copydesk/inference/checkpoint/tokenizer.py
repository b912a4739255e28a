"""The tokenizer of a GGUF vocabulary, in the files that Hugging Face libraries read."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from copydesk.inference.checkpoint.gguf import Vocabulary


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Byte-level BPE with GPT-2's split, which adds no tokens of its own.

    The original SmolLM2 tokenizer also splits digits one by one. No merge joins two digits, so that this
    differs only where white space in a row meets a digit; the adapter was trained without it, and what it was
    trained with counts.
    """
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary.tokens)},
            merges=list(vocabulary.merges),
            fuse_unk=False,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(vocabulary.tokens[index], special=True, normalized=False) for index in vocabulary.control_ids]
    )
    return tokenizer


def tokenizer_config(vocabulary: Vocabulary, context: int) -> dict[str, Any]:
    """What `tokenizer_config.json` says beside it, for transformers and vLLM."""
    named = {
        "bos_token": vocabulary.bos_id,
        "eos_token": vocabulary.eos_id,
        "unk_token": vocabulary.unk_id,
        "pad_token": vocabulary.pad_id,
    }
    tokens = {name: vocabulary.tokens[index] for name, index in named.items() if index is not None}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        **tokens,
    }
