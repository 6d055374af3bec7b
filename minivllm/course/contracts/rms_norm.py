"""3.2 `rms_norm(x, weight, eps, residual=None)` → (norm of x + residual, x + residual).

x: [num_rows, size], rows in one piece and any distance apart; residual: [num_rows, size], contiguous, or
None; weight: [size].
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor, show
from .rules import Broken, Rules

rules = Rules()
EPS = 1e-5


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def _compare(part, x, weight, eps=EPS, residual=None, note="", tolerance=1e-4) -> None:
    size = list(x.shape)
    called = f"{note}rms_norm(x {size}, weight, {eps:g}{'' if residual is None else ', residual'})"
    added = x if residual is None else x + residual
    want = _norm(added, weight, eps).to(x.dtype)
    added = added.clone()
    got = part(x, weight, eps) if residual is None else part(x, weight, eps, residual)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Broken(called, show(got), "(normed rows, rows before the norm)")
    close(f"{called}[0]", got[0], want, tolerance=tolerance)
    close(f"{called}[1]", got[1], added, tolerance=tolerance)


@rules.add("Divide a row by the square root of the mean of its squares.")
def one_row_is_scaled_to_a_mean_square_of_one(part, rng):
    _compare(part, random_tensor(rng, 1, 8) * 3, torch.ones(8))


@rules.add("Program r reads row r, at x + r · x_stride.")
def each_row_is_normed_by_itself(part, rng):
    scales = torch.tensor([[1.0], [20.0], [0.1]])
    _compare(part, random_tensor(rng, 3, 8) * scales, torch.ones(8))


@rules.add("Each column of the normed row is multiplied by its own weight.")
def the_weight_is_applied(part, rng):
    _compare(part, random_tensor(rng, 2, 8), random_tensor(rng, 8))


@rules.add("The padding must not count: load zeros there (other=0.0), and divide the sum by SIZE.")
def a_size_that_is_no_power_of_two_is_right(part, rng):
    for size in (1, 5, 12, 33):
        _compare(part, random_tensor(rng, 2, size), random_tensor(rng, size))


@rules.add("eps is added to the mean, under the root.")
def eps_goes_under_the_root(part, rng):
    x, weight = random_tensor(rng, 2, 8), torch.ones(8)
    _compare(part, x * 1e-3, weight, 1e-5)
    _compare(part, x, weight, 0.5)
    _compare(part, torch.zeros(1, 8), weight)


@rules.add("With HAS_RESIDUAL: add first, store the sum in `added`, then norm the sum.")
def a_residual_is_added_before_the_norm(part, rng):
    for size in (8, 6):
        x, residual = random_tensor(rng, 3, size), random_tensor(rng, 3, size)
        _compare(part, x, random_tensor(rng, size), residual=residual)


@rules.add("Rows of x are x_stride apart, those of residual and of the outputs SIZE.")
def rows_may_lie_apart(part, rng):
    x = random_tensor(rng, 3, 20)[:, 5:11]
    _compare(part, x, random_tensor(rng, 6), note="rows 20 apart: ")
    residual = random_tensor(rng, 3, 6)
    _compare(part, x, random_tensor(rng, 6), residual=residual, note="rows 20 apart: ")


@rules.add("300² is more than float16 holds. Convert to float32 when you load, back when you store.")
def the_squares_of_halves_do_not_overflow(part, rng):
    x = random_tensor(rng, 2, 8, dtype=torch.float16) * 300
    _compare(part, x, torch.ones(8, dtype=torch.float16), note="float16: ", tolerance=2e-3)


@rules.add("Outputs have x's dtype: .to(out.dtype.element_ty) before the store.")
def the_dtype_is_kept(part, rng):
    for dtype in (torch.float16, torch.bfloat16):
        x, weight, residual = (random_tensor(rng, *shape, dtype=dtype) for shape in ((2, 6), (6,), (2, 6)))
        _compare(part, x, weight, residual=residual, note=f"{dtype}: ", tolerance=0.05)


@rules.add("x and residual belong to the caller: write into out and added only.")
def the_inputs_are_left_alone(part, rng):
    inputs = random_tensor(rng, 2, 6), random_tensor(rng, 6), random_tensor(rng, 2, 6)
    copies = [x.clone() for x in inputs]
    part(inputs[0], inputs[1], EPS, inputs[2])
    part(inputs[0], inputs[1], EPS)
    for name, now, before in zip(("x", "weight", "residual"), inputs, copies, strict=True):
        if not torch.equal(now, before):
            raise Broken("rms_norm(x, weight, eps, residual)", f"{name} changed", f"{name} as it was")
