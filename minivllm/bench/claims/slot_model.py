"""What a scheduler will do, worked out from lengths alone: no tokens, no block ids, no engine.

Each step gives every running request one more token. A waiting request joins, in order, when there is a
slot and enough free blocks for all its known tokens, which it computes in one step. A request that needs
a block when none is free takes those of the latest one, which waits again and later computes all its
tokens anew (or, swapped, has them brought back). Who has its last token leaves. A static batch lets
nobody join before all have left. (Yu et al., Orca, 2022; Kwon et al., 2023.)

The engine has more rules: budgets, chunks, prefixes. Where they are not touched both must agree step for
step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..workloads import Lengths


@dataclass
class SlotStep:
    """`chunks`: (new tokens, tokens in the context with them) of each request served, as
    `executor.cost.forward_cost` takes them; `finished`: requests by number; `lost`: tokens whose keys and
    values were thrown away; `moved`: blocks swapped, out and in."""

    chunks: list[tuple[int, int]] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    num_preempted: int = 0
    lost: int = 0
    moved: int = 0


@dataclass
class _Request:
    number: int
    known: int
    left: int
    computed: int = 0
    swapped: bool = False
    blocks: int = 0


def slot_model(
    lengths: Lengths,
    max_num_seqs: int,
    num_blocks: int | None = None,
    block_size: int = 16,
    static: bool = False,
    swap: bool = False,
) -> list[SlotStep]:
    """The steps for requests that all wait at the start; `num_blocks=None` is memory without end."""
    waiting = [_Request(i, prompt, output) for i, (prompt, output) in enumerate(lengths)]
    free = num_blocks if num_blocks is not None else sum(p + o for p, o in lengths)
    watermark = (num_blocks or 0) // 100  # blocks that admission leaves free
    running: list[_Request] = []
    steps: list[SlotStep] = []
    while waiting or running:
        step, served = SlotStep(), []
        everyone_placed, had_running = True, bool(running)
        for request in list(running):
            if request not in running:  # its blocks went to an earlier one
                continue
            needed = _blocks(request.known, block_size) - request.blocks
            while needed > free and running[-1] is not request:
                last = running.pop()
                free += last.blocks
                step.num_preempted += 1
                if swap:
                    step.moved += _blocks(last.computed, block_size)
                else:
                    step.lost += last.computed
                    last.computed = 0
                last.swapped, last.blocks = swap, 0
                waiting.append(last)
                waiting.sort(key=lambda r: r.number)
            if needed > free:
                everyone_placed = False  # the latest itself: it keeps what it has, and misses a turn
                continue
            request.blocks += needed
            free -= needed
            served.append(request)
        if everyone_placed and not step.num_preempted and not (static and had_running):
            while waiting and len(running) < max_num_seqs:
                request = waiting[0]
                needed = _blocks(request.known, block_size)
                if running and needed + watermark > free:
                    break
                del waiting[0]
                if request.swapped:
                    step.moved += _blocks(request.computed, block_size)
                    request.swapped = False
                request.blocks = needed
                free -= needed
                running.append(request)
                running.sort(key=lambda r: r.number)
                served.append(request)
        for request in served:
            step.chunks.append((request.known - request.computed, request.known))
            request.computed = request.known
            request.known += 1
            request.left -= 1
            if not request.left:
                free += request.blocks
                running.remove(request)
                step.finished.append(request.number)
        steps.append(step)
    return steps


def _blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
