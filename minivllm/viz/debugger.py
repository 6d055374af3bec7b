"""A debugger for the engine: add requests, step, and look at every stage of the data path.

    viz.explore(llm)

The text of each stage comes from the engine itself: the requests with known and computed tokens, the
plan of the last step, the shapes of the tensors that it became, the block tables afterwards. The
`Explorer` works without widgets, too; the buttons only call it.
"""

from __future__ import annotations

from typing import Any

from ..sampling import SamplingParams
from .block_table import BlockTableView
from .identity import Identity
from .main_thread import in_main_thread
from .timeline import TimelineView

SAMPLE_PROMPT = "The capital of France is"


class Explorer:
    """Steps a live engine (`llm` or its engine) and says what it sees."""

    def __init__(self, llm: Any) -> None:
        self.engine = getattr(llm, "engine", llm)

    def add(self, prompt: Any = SAMPLE_PROMPT, max_tokens: int = 16, n: int = 1) -> str:
        """Queue a greedy request; returns its id. Where there is no tokenizer, text is token ids: "1 2 3"."""
        if isinstance(prompt, str) and self.engine.tokenizer is None and prompt.replace(" ", "").isdigit():
            prompt = [int(token) for token in prompt.split()]
        params = SamplingParams(temperature=0, max_tokens=max_tokens, n=n, ignore_eos=True)
        return self.engine.add_request(prompt, params)

    def step(self, count: int = 1) -> int:
        """Run up to `count` steps, as long as there is work; returns how many ran."""
        for done in range(count):
            if not self.engine.has_unfinished_requests:
                return done
            self.engine.step()
        return count

    def set_budget(self, budget: int) -> None:
        """Tokens a step, from the next step on; no request need end for it."""
        self.engine.scheduler.config = self.engine.config = _with_budget(self.engine.config, budget)
        self.engine.trace.token_budget = budget

    def set_pool(self, num_blocks: int) -> None:
        """Use so many KV blocks. All requests are aborted first; `ValueError` for more than there are."""
        for request_id in list(self.engine.unfinished_ids):
            self.engine.abort(request_id)
        self.engine.reconfigure(num_blocks=num_blocks)

    def requests(self) -> str:
        """Known and computed tokens of everybody: the one rule of the engine, in numbers."""
        identity = Identity(self.engine.trace)
        lines = [f"{'':>4} {'status':<9} {'computed':>8} {'known':>6}  blocks"]
        for request in [*self.engine.scheduler.running, *self.engine.scheduler.waiting]:
            table = self.engine.kv.tables.get(request.request_id)
            blocks = " ".join(map(str, table.blocks)) if table is not None else "–"
            letter = identity.letter(request.request_id)
            lines.append(
                f"{letter:>4} {request.status.value:<9} {request.num_computed_tokens:>8} "
                f"{request.num_tokens:>6}  {blocks}"
            )
        return "\n".join(lines) if len(lines) > 1 else "no requests"

    def plan(self) -> str:
        """Who computed what in the last step."""
        steps = self.engine.trace.steps
        if not steps:
            return "no step yet"
        step, identity = steps[-1], Identity(self.engine.trace)
        lines = [f"step {step.index}: {sum(step.num_scheduled_tokens.values())} tokens"]
        for request_id, n in step.num_scheduled_tokens.items():
            start = step.starts[request_id]
            samples = ", samples a token" if request_id in step.sampled else ""
            lines.append(f"{identity.letter(request_id):>4} positions {start} to {start + n - 1}{samples}")
        for name, ids in (("preempted", step.preempted), ("finished", step.finished)):
            if ids:
                lines.append(f"{name}: {' '.join(identity.letter(i) for i in ids)}")
        moves = (step.num_swapped_out, step.num_copied, step.num_swapped_in)
        if any(moves):
            lines.append("blocks swapped out {}, copied {}, swapped in {}".format(*moves))
        return "\n".join(lines)

    def shapes(self) -> str:
        """The tensors of the last step, in the order in which they come about."""
        shapes = getattr(self.engine.executor, "shapes", {})
        return "\n".join(f"{name:<13} {list(shape)}" for name, shape in shapes.items()) or "no step yet"

    def text(self) -> str:
        """All stages, one below the other."""
        parts = (("requests", self.requests()), ("plan", self.plan()), ("tensors", self.shapes()))
        return "\n\n".join(f"{title}\n{body}" for title, body in parts)


def explore(llm: Any) -> Any:
    """The debugger as ipywidgets; where they are missing, the `Explorer`, to be called by hand."""
    explorer = Explorer(llm)
    try:
        import ipywidgets as widgets
    except ImportError:
        return explorer
    from .player import svg

    engine = explorer.engine
    prompt = widgets.Text(value=SAMPLE_PROMPT, description="prompt", layout=widgets.Layout(width="420px"))
    max_tokens = widgets.BoundedIntText(value=16, min=1, max=512, description="max_tokens")
    add = widgets.Button(description="add request", icon="plus")
    one = widgets.Button(description="step", icon="step-forward", button_style="primary")
    ten = widgets.Button(description="10 steps", icon="forward")
    budget = widgets.BoundedIntText(
        value=engine.config.max_num_batched_tokens, min=1, max=65536, description="budget"
    )
    pool = widgets.BoundedIntText(
        value=engine.kv.num_blocks, min=1, max=engine.kv.num_blocks, description="blocks"
    )
    message, stages, tables, timeline = (widgets.HTML() for _ in range(4))

    def refresh(said: str = "") -> None:
        message.value = said
        stages.value = "".join(
            f"<div style='display:inline-block;vertical-align:top;margin-right:28px'><b>{title}</b>"
            f"<pre>{body.replace('<', '&lt;')}</pre></div>"
            for title, body in (
                ("requests", explorer.requests()), ("plan", explorer.plan()), ("tensors", explorer.shapes()),
            )
        )  # fmt: skip
        if engine.trace.steps:
            last = engine.trace.steps[-1].index
            tables.value = svg(BlockTableView(engine.trace).figure(last), f"block table, step {last}")
            timeline.value = svg(TimelineView(engine.trace).figure(), f"timeline up to step {last}")

    def guarded(action: Any) -> Any:
        def run(_: Any) -> None:
            try:
                said = action()
            except ValueError as error:
                said = f"<span style='color:#B00020'>{error}</span>"
            refresh(said or "")

        return in_main_thread(run)

    add.on_click(guarded(lambda: f"added request {explorer.add(prompt.value, max_tokens.value)}"))
    one.on_click(guarded(lambda: f"{explorer.step(1)} step"))
    ten.on_click(guarded(lambda: f"{explorer.step(10)} steps"))
    budget.observe(guarded(lambda: explorer.set_budget(budget.value)), names="value")
    pool.observe(guarded(lambda: explorer.set_pool(pool.value)), names="value")
    refresh()
    controls = [widgets.HBox([prompt, max_tokens, add]), widgets.HBox([one, ten, budget, pool]), message]
    return widgets.VBox([*controls, stages, tables, timeline])


def _with_budget(config: Any, budget: int) -> Any:
    from dataclasses import replace

    return replace(config, max_num_batched_tokens=budget)
