"""The invariants of the scheduler, written out; tests call them after every step."""

from __future__ import annotations

from typing import Any

from ..request import Status


def check_scheduler(scheduler: Any) -> None:
    """Raise `AssertionError` unless queues, states and block tables agree."""
    kv, running, waiting = scheduler.kv, scheduler.running, scheduler.waiting
    kv.check()
    assert len(running) <= scheduler.config.max_num_seqs, "more requests run than max_num_seqs"
    for name, queue in (("running", running), ("waiting", waiting)):
        orders = [r.order for r in queue]
        assert orders == sorted(set(orders)), f"the {name} requests are out of order, or one is there twice"
    for request in running:
        assert request.status is Status.RUNNING, f"{request} is among the running"
        table = kv.tables.get(request.request_id)
        placed = table.num_tokens if table is not None else 0
        assert request.num_computed_tokens <= placed, f"{request} has computed tokens without blocks"
        assert request.num_computed_tokens < request.num_tokens, f"{request} has nothing left to compute"
    for request in waiting:
        assert request.request_id not in kv.tables, f"{request} waits, but owns blocks"
        swapped = request.status is Status.SWAPPED
        assert swapped or request.status is Status.WAITING, f"{request} is among the waiting"
        assert swapped == (request.request_id in kv.swap.tables), f"{request} and the swap space disagree"
        assert swapped or request.num_computed_tokens == 0, f"{request} waits, but has computed tokens"
    assert set(kv.tables) <= {r.request_id for r in running}, "a block table belongs to no running request"
