"""The small notebooks of the browser tests: a tiny model, so that the widgets and not the engine take the
time. `{path}` is its folder. `trace_of_views` makes in this process what the notebook's first cell makes."""

RUN = """
from minivllm import LLM, SamplingParams
from minivllm.viz import BlockTableView, MemoryView, PrefixTreeView, TimelineView, explore

small = dict(block_size=4, num_gpu_blocks_override=20, max_num_batched_tokens=12, enable_prefix_caching=True)
llm = LLM("{path}", skip_tokenizer_init=True, **small)
prompts = [dict(prompt_token_ids=[5, 6, 7, 8, *range(20 + i, 22 + 3 * i)]) for i in range(4)]
params = [SamplingParams(max_tokens=6 + i, temperature=0, ignore_eos=True) for i in range(4)]
llm.generate(prompts, params, use_tqdm=False);
""".strip()
RECORDED = """
import threading

threads = set()
class Recorded(BlockTableView):
    def figure(self, *where):
        threads.add(threading.current_thread().name)
        return super().figure(*where)
Recorded(llm.trace)
""".strip()
ROOFLINE = """
from minivllm.executor.hardware import Hardware
from minivllm.viz.roofline import Point, Roofline

slow = Hardware("a small machine", 1e12, 1e11, 2**34)
MemoryView(llm.trace).show()
Roofline([slow], [Point("decode", slow, 1.0), Point("prefill", slow, 100.0, 8e11)]).show()
""".strip()
ENGINE = """
from minivllm import LLM
from minivllm.viz import explore

small = dict(block_size=4, num_gpu_blocks_override=20, max_num_batched_tokens=8)
llm = LLM("{path}", skip_tokenizer_init=True, **small)
""".strip()

BLOCKS, TIMELINE, TREE, STATIC, THREADS = 1, 2, 3, 4, 5  # cells of "views"
CELLS = {
    "views": [
        RUN, RECORDED, "TimelineView(llm.trace)", "PrefixTreeView(llm.trace)", ROOFLINE, "print(threads)",
    ],
    "explore": [ENGINE, "explore(llm)"],
}  # fmt: skip


def trace_of_views(path: str):
    names: dict = {}
    exec(RUN.format(path=path), names)
    return names["llm"].trace
