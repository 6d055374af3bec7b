import pytest
import torch
import torch.nn.functional as F

from minivllm.model.linear import Linear, can_pack

SHAPES = [(960, 576), (576, 1536), (64, 96), (37, 20), (2048, 1025)]


def _layer(out_features, in_features, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(out_features, in_features, generator=generator).to(dtype)
    bias = torch.randn(out_features, generator=generator).to(dtype)
    return weight, bias, torch.randn(64, in_features, generator=generator).to(dtype)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_whatever_the_number_of_rows(shape, with_bias):
    weight, bias, x = _layer(*shape)
    if not can_pack(weight):
        pytest.skip("this torch has no oneDNN; tokens may then depend on the batch")
    layer = Linear(weight, bias if with_bias else None)
    together = layer(x)
    for rows in range(1, 65):
        assert torch.equal(layer(x[:rows]), together[:rows]), f"{rows} rows"
    for row in range(64):
        assert torch.equal(layer(x[row : row + 1]), together[row : row + 1])


@pytest.mark.parametrize("shape", SHAPES)
def test_result_is_that_of_a_plain_product(shape):
    weight, bias, x = _layer(*shape)
    expected = F.linear(x.double(), weight.double(), bias.double()).float()
    assert torch.allclose(Linear(weight, bias)(x), expected, rtol=1e-4, atol=1e-3)


def test_packing_copies_so_that_the_original_may_go():
    weight, _, x = _layer(64, 96)
    layer = Linear(weight)
    before = layer(x)
    if layer.is_packed:
        weight.zero_()
    assert torch.equal(layer(x), before)
    assert before.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes_are_not_packed(dtype):
    weight, bias, x = _layer(64, 96, dtype)
    layer = Linear(weight, bias)
    assert not layer.is_packed
    assert torch.equal(layer(x), F.linear(x, weight, bias))


def test_without_onednn_the_plain_product_is_used(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    weight, bias, x = _layer(64, 96)
    layer = Linear(weight, bias)
    assert not layer.is_packed
    assert torch.equal(layer(x), F.linear(x, weight, bias))
