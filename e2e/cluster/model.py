"""Write a tiny Llama with random weights and a byte tokenizer: `python -m e2e.cluster.model FOLDER`.

Real vLLM loads it as it loads any model. The seed is fixed, so greedy output is the same wherever it was
made.
"""

import sys
from pathlib import Path

SEED = 0
MAX_POSITIONS = 4096
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def write(folder: Path) -> None:
    """Write configuration, weights and tokenizer into the folder."""
    # Torch takes seconds to import: only here, so that others can import this module for its constants.
    import torch  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    start, end = write_tokenizer(folder)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=start,
        eos_token_id=end,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # engines run as any user, and weights are written for their owner alone


def write_tokenizer(folder: Path) -> tuple[int, int]:
    """Write a tokenizer that takes each byte for a token; returns the tokens that start and end a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    vocabulary = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    start, end = len(vocabulary), len(vocabulary) + 1
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, "<s>": start, "</s>": end}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=_CHAT_TEMPLATE
    ).save_pretrained(folder)
    return start, end


if __name__ == "__main__":
    write(Path(sys.argv[1]))
