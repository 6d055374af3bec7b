"""Two tiny tokenizers of the kinds that models of our architectures have, written as checkpoints do."""

import json

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}\n"
    "    {% if message.role == 'system' %}\n"
    "[{{ message.content | tojson }}]\n"
    "    {% else %}\n"
    "<|im_start|>{{ message.role }}: {{ message.content }}<|im_end|>\n"
    "    {% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
)
_CORPUS = [
    "the cat and the hat, the end of the world; hello world",
    "日本語の文と日本",
    "naïve café 🎉 12345",
]


def byte_level_folder(folder):
    """Byte-level BPE with digits apart, as SmolLM2 has it; 400 tokens at most."""
    folder.mkdir(parents=True, exist_ok=True)
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    fast.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(_CORPUS, trainer)
    fast.add_tokens([AddedToken("plain→added", normalized=False)])
    return _write(folder, fast, bos_token=special[1], eos_token=special[2])


def sentencepiece_folder(folder):
    """BPE over ▁-marked text with bytes to fall back on and a beginning of sequence, as Llama 2 has it."""
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    pieces = ["▁", "a", "b", "c", "h", "e", "t", "é", "日", ".", "▁a", "ab", "▁ab", "▁t", "he", "▁the"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b"), ("▁", "t"), ("h", "e"), ("▁t", "he")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    fast = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return _write(folder, fast, bos_token="<s>", eos_token="</s>")


def _write(folder, fast, **special_tokens):
    fast.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
        **special_tokens,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
