"""trace: run a short workload and write what the engine did: an HTML page that plays it, or a file for a
trace viewer. The workload shows what a scheduler has to deal with: chats that come at different times and
share a system prompt, one prompt with three completions, and a pool that is too small for all of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .common import add_engine_arguments, make_llm

HELP = "write a trace of a short run: --html FILE to look at, --perfetto FILE for a trace viewer"

SYSTEM = (
    "You are a friendly assistant who answers briefly, in plain words, and says so when something is unknown."
)
# (step in which it comes, question, completions, most tokens of each)
CHATS = (
    (0, "What is the capital of France?", 1, 24),
    (
        0,
        "Explain to a cook what a cache is, and then how the one in a processor differs from it.",
        1,
        40,
    ),
    (2, "Write one sentence about the sea.", 3, 26),
    (6, "List the planets from the Sun outwards, and say one thing about each of them.", 1, 44),
    (12, "What is 7 times 8?", 1, 12),
    (18, "Name a colour.", 1, 8),
    (30, "Why is the sky blue?", 1, 30),
)
# Where the user sets nothing: a pool and a budget small enough for preemption and chunks to be seen.
SETTINGS = {
    "num_gpu_blocks_override": 24, "block_size": 8, "max_num_batched_tokens": 40, "max_num_seqs": 8,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="write a page that plays the run")
    parser.add_argument("--perfetto", metavar="FILE", help="write a Chrome trace for a trace viewer")
    parser.add_argument("--figures", metavar="FOLDER", help="write timeline.svg, block_table.svg and others")
    add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    from ..viz.page import write_page

    if not (args.html or args.perfetto or args.figures):
        raise ValueError("nothing to write; give --html FILE, --perfetto FILE or --figures FOLDER")
    if args.figures and not Path(args.figures).is_dir():
        raise ValueError(f"{args.figures} is no directory; create it first")
    for path in filter(None, (args.html, args.perfetto)):
        _check_writable(path)
    for name, value in SETTINGS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    llm = make_llm(args)
    run_workload(llm.engine)
    if args.html:
        write_page(llm.trace, args.html, f"minivllm · {Path(args.model).name}")
    if args.perfetto:
        llm.trace.to_perfetto(args.perfetto)
    if args.figures:
        write_figures(llm.trace, Path(args.figures))
    stats = llm.stats()
    if not args.json:
        print(f"{len(CHATS)} chats, {stats['num_steps']} steps, {stats['num_preemptions']} preemptions")
        if args.html:
            print(f"{args.html}: open it with any browser, from disk")
        if args.perfetto:
            print(f"{args.perfetto}: open it in a trace viewer, such as ui.perfetto.dev or chrome://tracing")
    return {"html": args.html, "perfetto": args.perfetto, "num_steps": stats["num_steps"], "stats": stats}


def run_workload(engine: Any) -> None:
    """The chats through the engine, each added before its step. Greedy, or with a seed: every run
    schedules the same."""
    from ..sampling import SamplingParams

    coming = list(CHATS)
    while coming or engine.has_unfinished_requests:
        # With nobody left to serve, the next one comes at once.
        while coming and (coming[0][0] <= engine.trace.num_steps or not engine.has_unfinished_requests):
            _, question, n, max_tokens = coming.pop(0)
            params = SamplingParams(
                n=n, max_tokens=max_tokens, temperature=0.8 if n > 1 else 0, seed=1 if n > 1 else None
            )
            engine.add_request(_prompt(engine.tokenizer, question), params)
        engine.step()


def write_figures(trace: Any, folder: Path) -> None:
    """The static pictures as SVG, of the moment when most requests run; what the README shows."""
    from ..viz import BlockTableView, MemoryView, PrefixTreeView, TimelineView

    busiest = max(trace.steps, key=lambda step: (step.num_running, -step.num_free_blocks)).index
    figures = {
        "timeline": TimelineView(trace, "a short run").figure(),
        "block_table": BlockTableView(trace).figure(busiest),
        "prefix_tree": PrefixTreeView(trace).figure(busiest),
        "memory": MemoryView(trace).figure(),
    }
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _prompt(tokenizer: Any, question: str) -> str | dict[str, Any]:
    if not tokenizer.has_chat_template:
        return f"{SYSTEM}\n\n{question}\n"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    return {"prompt_token_ids": tokenizer.encode(text, add_special_tokens=False)}


def _check_writable(path: str) -> None:
    """Before minutes of work, not after them."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: there is no directory {folder}; create it first")
    if Path(path).is_dir():
        raise ValueError(f"{path} is a directory; name a file in it")
