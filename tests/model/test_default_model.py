"""The real model, where it has been fetched (`make` does so before the tests)."""

import pytest
import torch

from minivllm.config import DEFAULT_MODEL
from minivllm.model.fetch import cache_dir, resolve
from minivllm.model.loader import load_model
from minivllm.model.tokenizer import Tokenizer

from .checkpoints import all_logits, reference_logits

pytestmark = pytest.mark.skipif(
    not (cache_dir() / "models" / DEFAULT_MODEL).is_dir(), reason=f"{DEFAULT_MODEL} has not been fetched"
)
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_it_knows_the_capital_of_france_as_transformers_does():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve(DEFAULT_MODEL)
    tokenizer, decoder = Tokenizer(folder), load_model(folder)
    ids = tokenizer.apply_chat_template(QUESTION, tokenize=True)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert ids == theirs.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)

    reference = reference_logits(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), ids)
    logits = all_logits(decoder, ids)
    assert (logits - reference).abs().max() < 2e-3
    assert torch.equal(logits.argmax(-1), reference.argmax(-1))

    answer = []
    while tokenizer.eos_token_id not in answer and len(answer) < 12:
        answer.append(all_logits(decoder, ids + answer)[-1].argmax().item())
    assert tokenizer.decode(answer) == "The capital of France is Paris."
