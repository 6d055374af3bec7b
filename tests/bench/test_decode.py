"""The engine benchmark and its random checkpoint, on a CPU and with a clock of our own."""

import pytest
import torch

from minivllm import LLM
from minivllm.bench.decode import measure, step_seconds
from minivllm.bench.random_checkpoint import LLAMA_1B, LLAMA_3B, tensor_shapes, write
from minivllm.executor.cost import matrix_weights
from minivllm.model.config import ModelConfig


def test_only_steps_in_which_all_requests_decode_are_timed(checkpoints):
    llm = LLM(
        checkpoints["llama"], skip_tokenizer_init=True, device="cpu", max_num_seqs=8, max_model_len=256,
        max_num_batched_tokens=40, num_gpu_blocks_override=150,
    )  # fmt: skip
    ticks = iter(range(1000))
    assert step_seconds(llm.engine, 5, prompt_len=20, num_steps=4, clock=lambda: next(ticks)) == 1
    assert next(ticks) == 8  # two readings a step
    timed = list(llm.trace.steps)[-4:]
    assert all(list(step.num_scheduled_tokens.values()) == [1] * 5 for step in timed)
    assert not llm.engine.has_unfinished_requests


def test_requests_that_cannot_decode_together_are_refused(checkpoints):
    llm = LLM(
        checkpoints["llama"], skip_tokenizer_init=True, device="cpu", max_num_seqs=2, max_model_len=40,
        num_gpu_blocks_override=6,
    )  # fmt: skip
    with pytest.raises(ValueError, match="3 requests never decode together in 6 blocks"):
        step_seconds(llm.engine, 3, prompt_len=10)


def test_rows_hold_a_step_against_the_time_to_read_the_weights(checkpoints):
    llm = LLM(
        checkpoints["llama"],
        skip_tokenizer_init=True,
        device="cpu",
        max_num_seqs=8,
        num_gpu_blocks_override=8,
    )
    weights = sum(matrix_weights(llm.engine.model_config)) * 4
    rows = measure(
        llm.engine, [1, 8, 64], bandwidth=weights / 0.010, seconds=lambda engine, batch: 0.02 * batch
    )
    assert [row["batch"] for row in rows] == [1, 8]  # 64 is more than max_num_seqs
    assert rows[0]["weight_read_ms"] == pytest.approx(10) and rows[0]["times_roof"] == pytest.approx(2)
    assert rows[1]["ms_per_step"] == pytest.approx(160)
    assert rows[1]["output_tokens_per_s"] == pytest.approx(8 / 0.16)
    assert rows[0]["cuda_graphs"] is False


def test_the_random_checkpoint_loads_and_answers(tmp_path):
    shape = {
        **LLAMA_1B, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8,
        "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 90,
    }  # fmt: skip
    count = write(tmp_path, shape, torch.float16)
    llm = LLM(str(tmp_path), skip_tokenizer_init=True, device="cpu", num_gpu_blocks_override=8)
    assert len(llm.generate([[1, 2, 3]], use_tqdm=False)[0].outputs[0].token_ids) > 0
    layers, head = matrix_weights(llm.engine.model_config)
    assert count == layers + head + (2 * 2 + 1) * 32


@pytest.mark.parametrize("shape,billions", [(LLAMA_1B, 1.2), (LLAMA_3B, 3.2)])
def test_the_stated_sizes_are_right(tmp_path, shape, billions):
    import json

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "tie_word_embeddings": True,
        **shape,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = tensor_shapes(ModelConfig.from_folder(tmp_path))
    assert round(sum(torch.Size(size).numel() for size in sizes.values()) / 1e9, 1) == billions
