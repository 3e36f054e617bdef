"""Makes tiny chat models of random weights: `python tiny_chat_model.py FOLDER`; needs transformers.

A model reads one token for each blank, and says nothing but whole phrases: a call, half a call, a remark,
the end. So chance alone makes calls of tools that exist and of one that does not, several at once, empty
replies and cut ones. `transformers serve` knows how models of Qwen's architecture write calls and parses
them (`parsed`); of those of Llama's it does not (`unparsed`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PARSED, UNPARSED = "parsed", "unparsed"
_CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
_IN_TEXT = "<function=%s>%s</function>"
_CALLS = (
    ("get_channels", "{}"),
    ("get_webpage", '{"url": "www.informations.com"}'),
    ("get_users_in_channel", '{"channel": "general"}'),
    ("read_channel_messages", '{"channel": "general"}'),
    ("no_such_tool", '{"a": [1, null]}'),
)
PHRASES = (
    *(_CALL % call for call in _CALLS),
    *(_IN_TEXT % call for call in _CALLS),
    '<tool_call>\n{"name": "get_channels", "arguments": ',
    "I looked. ",
    "Zürich \u2603 ",
)
_START, _END, _BLANK = "<|im_start|>assistant\n", "<|im_end|>", "\u0120"
_TEMPLATE = """
{%- for tool in tools or [] %}{{ tool | tojson }} {% endfor %}
{%- for message in messages %}<|im_start|>{{ message.role }} {{ message.content }}
{%- for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}<|im_end|> {% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer() -> Any:
    """A tokenizer that knows blanks and the phrases; transformers makes it anew, byte-level, from this."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(vocab={_BLANK: 0}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([_START, _END])
    made.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=_END, chat_template=_TEMPLATE)


def make(folder: Path) -> None:
    """Write both models to `folder/parsed` and `folder/unparsed`."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    words = tokenizer()
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    size |= {"num_key_value_heads": 1, "max_position_embeddings": 65_536, "vocab_size": len(words)}
    ends = {"eos_token_id": words.eos_token_id, "bos_token_id": None}
    found = {
        PARSED: Qwen2ForCausalLM(Qwen2Config(**size, **ends)),
        UNPARSED: LlamaForCausalLM(LlamaConfig(**size, **ends)),
    }
    unsaid = [words.convert_tokens_to_ids(token) for token in (_BLANK, _START)]
    for name, model in found.items():
        model.generation_config = GenerationConfig(
            do_sample=True, suppress_tokens=unsaid, sequence_bias=[[[words.eos_token_id], 2.0]], **ends
        )
        model.save_pretrained(folder / name)
        words.save_pretrained(folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
