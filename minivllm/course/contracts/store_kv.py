"""3.1 `store_kv(k, v, k_cache, v_cache, slot_mapping)`: write each token's row into its slot.

k, v: [num_tokens, num_kv_heads, head_dim], a token's row in one piece, rows any distance apart; caches:
[num_blocks, block_size, num_kv_heads, head_dim]; slot_mapping: [num_tokens], no slot twice.
"""

from __future__ import annotations

import torch

from .expect import random_tensor
from .rules import Broken, Rules

rules = Rules()
OLD = 7.0  # what lies in a slot before


class _Step:
    """Tokens for the slots of a cache. The caches lie between two blocks of somebody else's memory."""

    def __init__(self, rng, slots, heads=2, dim=4, num_blocks=4, block_size=4, dtype=torch.float32):
        shape = (num_blocks + 2, block_size, heads, dim)
        self.slots, self.around = slots, [torch.full(shape, OLD, dtype=dtype) for _ in range(2)]
        self.caches = [memory[1:-1] for memory in self.around]
        self.kv = [random_tensor(rng, len(slots), heads, dim, dtype=dtype) for _ in range(2)]
        self.called = f"store_kv(k, v, …, slot_mapping={slots}), caches {list(self.caches[0].shape)}"

    def run(self, part, k=None, v=None) -> None:
        k, v = self.kv[0].clone() if k is None else k, self.kv[1].clone() if v is None else v
        part(k, v, *self.caches, torch.tensor(self.slots))

    def check_slots(self, note: str = "") -> None:
        for name, cache, rows in zip(("k_cache", "v_cache"), self.caches, self.kv, strict=True):
            for slot, row in zip(self.slots, rows, strict=True):
                got = cache.flatten(0, 1)[slot]
                if not torch.equal(got, row):
                    expected = f"row {self.slots.index(slot)} of {name[0]}, {_numbers(row)}"
                    raise Broken(note + self.called, f"{name} slot {slot}: {_numbers(got)}", expected)

    def check_the_rest(self) -> None:
        for name, memory in zip(("k_cache", "v_cache"), self.around, strict=True):
            size = memory.shape[1]
            for slot, row in enumerate(memory.flatten(0, 1)):
                if slot - size not in self.slots and not bool((row == OLD).all()):
                    inside = size <= slot < len(memory) * size - size
                    place = f"slot {slot - size}" if inside else "memory outside it"
                    raise Broken(self.called, f"{name}: {place} changed", "only the named slots written")


def _numbers(row: torch.Tensor) -> str:
    return f"[{', '.join(f'{x:.2f}' for x in row.flatten()[:4].tolist())}, …]"


@rules.add("The row of the token begins at token · k_stride, its slot at slot · ROW. Keys and values alike.")
def one_token_lands_in_its_slot(part, rng):
    for slot in (0, 5, 15):
        step = _Step(rng, [slot])
        step.run(part)
        step.check_slots()


@rules.add("One program a token: tl.program_id(0) says which, and slot_mapping where it goes.")
def each_token_goes_to_its_own_slot(part, rng):
    step = _Step(rng, rng.sample(range(16), 5))
    step.run(part)
    step.check_slots()


@rules.add("tl.arange wants powers of two, so ROW_PAD columns are there and only ROW of them count.")
def a_row_that_is_no_power_of_two_is_whole(part, rng):
    for heads, dim in ((3, 4), (1, 5), (3, 6)):
        step = _Step(rng, [6, 2, 9], heads, dim)
        step.run(part)
        step.check_slots()


@rules.add("Without a mask on the store, the padding of a row ends up in the slot behind it.")
def nothing_else_is_written(part, rng):
    for heads, dim in ((2, 4), (3, 4), (1, 5)):
        step = _Step(rng, [6, 15, 0], heads, dim)
        step.run(part)
        step.check_the_rest()


@rules.add("k and v are views into q, k, v of one product: rows are k_stride and v_stride apart, not ROW.")
def rows_of_a_fused_projection_are_found(part, rng):
    for fused in ((True, True), (True, False), (False, True)):
        step = _Step(rng, rng.sample(range(16), 3))
        wide = random_tensor(rng, 3, 9, 4)
        views = [wide[:, 2 * i + 1 : 2 * i + 3] for i in range(2)]
        for view, rows in zip(views, step.kv, strict=True):
            view.copy_(rows)
        step.run(part, *(view if use else None for view, use in zip(views, fused, strict=True)))
        step.check_slots("rows apart: ")


@rules.add("A slot is block · block_size + offset already. The kernel needs no block size at all.")
def any_block_size_works(part, rng):
    for size in (1, 3, 16):
        step = _Step(rng, rng.sample(range(4 * size), 3), block_size=size)
        step.run(part)
        step.check_slots()


@rules.add("Loading and storing keep the type; do not convert.")
def halves_are_stored_as_they_are(part, rng):
    for dtype in (torch.float16, torch.bfloat16):
        step = _Step(rng, [3, 8], dtype=dtype)
        step.run(part)
        step.check_slots(f"{dtype}: ")


@rules.add("Read from k and v, write to the caches.")
def keys_and_values_are_left_alone(part, rng):
    step = _Step(rng, [1, 2])
    k, v = (rows.clone() for rows in step.kv)
    step.run(part, k, v)
    for name, now, before in zip("kv", (k, v), step.kv, strict=True):
        if not torch.equal(now, before):
            raise Broken(step.called, f"{name} changed", f"{name} as it was")


@rules.add("Write down the slots of two tokens, and follow the addresses by hand.")
def any_step_is_stored(part, rng):
    for _ in range(6):
        num_blocks, size = rng.randint(1, 5), rng.choice([1, 2, 3, 8])
        slots = rng.sample(range(num_blocks * size), rng.randint(1, min(4, num_blocks * size)))
        step = _Step(rng, slots, rng.randint(1, 3), rng.choice([2, 5, 8]), num_blocks, size)
        step.run(part)
        step.check_slots()
        step.check_the_rest()
