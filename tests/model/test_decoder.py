import pytest
import torch

from minivllm.model.loader import load_model

from .checkpoints import all_logits, causal_attention, reference_logits, write_checkpoint

IDS = torch.randint(0, 101, (40,), generator=torch.Generator().manual_seed(1)).tolist()
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS = {
    "llama": ("llama", {}),
    "llama, tied head": ("llama", {"tie_word_embeddings": True}),
    "llama, attention and MLP bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, explicit head_dim": ("llama", {"head_dim": 16}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, linear rope": ("llama", {"rope_parameters": LINEAR}),
    "llama, llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied head": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3, attention bias": ("qwen3", {"head_dim": 8, "attention_bias": True}),
    "wide MLP, where one row is summed in another order": ("llama", {"intermediate_size": 1100}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_those_of_transformers(tmp_path, variant):
    kind, overrides = VARIANTS[variant]
    reference = reference_logits(write_checkpoint(tmp_path, kind, **overrides), IDS)
    logits = all_logits(load_model(tmp_path), IDS)
    assert logits.dtype == torch.float32
    assert (logits - reference).abs().max() < 1e-4
    assert len(set(reference.argmax(-1).tolist())) > 5, "the checkpoint ignores its prompt"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_fp32(tmp_path, dtype):
    reference = reference_logits(write_checkpoint(tmp_path), IDS)
    decoder = load_model(tmp_path, dtype=dtype)
    logits = all_logits(decoder, IDS)
    assert decoder.dtype == dtype and logits.dtype == torch.float32
    assert (logits - reference).abs().mean() < 0.05 * reference.abs().mean()


def test_a_token_gets_the_same_bits_alone_and_in_company(tmp_path):
    write_checkpoint(tmp_path, "qwen3", head_dim=16, intermediate_size=1100)
    decoder = load_model(tmp_path)
    ids, positions = torch.tensor(IDS), torch.arange(len(IDS))

    def attend(layer, q, k, v):  # own value only, so that rows have nothing to do with each other
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1) * q

    def logits(rows):
        return decoder.logits(decoder.hidden(ids[rows], positions[rows], attend))

    together = logits(slice(None))
    for rows in (slice(0, 1), slice(7, 8), slice(3, 5), slice(11, 20), slice(30, 40)):
        assert torch.equal(logits(rows), together[rows])


def test_two_sequences_in_one_ragged_batch_equal_each_alone(tmp_path):
    write_checkpoint(tmp_path)
    decoder = load_model(tmp_path)
    first, second = IDS[:13], IDS[20:29]

    def attend(*args):
        layer, *qkv = args
        cut = len(first)
        parts = [causal_attention(layer, *(x[rows] for x in qkv)) for rows in (slice(cut), slice(cut, None))]
        return torch.cat(parts)

    positions = torch.cat((torch.arange(len(first)), torch.arange(len(second))))
    logits = decoder.logits(decoder.hidden(torch.tensor(first + second), positions, attend))
    assert torch.allclose(logits[: len(first)], all_logits(decoder, first), atol=1e-5)
    assert torch.allclose(logits[len(first) :], all_logits(decoder, second), atol=1e-5)


def test_attend_is_given_layers_in_order_and_the_documented_shapes(tmp_path):
    write_checkpoint(tmp_path, head_dim=16)
    decoder = load_model(tmp_path)
    seen = []

    def attend(layer, q, k, v):
        seen.append((layer, tuple(q.shape), tuple(k.shape), tuple(v.shape)))
        return q

    assert decoder.hidden(torch.tensor([3, 4]), torch.tensor([0, 1]), attend).shape == (2, 48)
    assert seen == [(layer, (2, 6, 16), (2, 2, 16), (2, 2, 16)) for layer in range(3)]


def test_logits_of_no_row_are_an_empty_tensor(tmp_path):
    write_checkpoint(tmp_path)
    assert load_model(tmp_path).logits(torch.empty(0, 48)).shape == (0, 101)
