"""Answers to lab 05: right ones in a style of their own, and wrong ones that readers really give.

A wrong one is the right one with a piece replaced: (exercise id, the fault in words, the name of the first
rule that fails, the piece, what stands there instead).
"""

LATENCIES = """
def latencies(trace):
    moments = {name: [record.arrival_time] for name, record in trace.requests.items()}
    for step in trace.steps:
        for name in step.sampled:
            moments[name].append(step.time_end)
    answer = {}
    for name, times in moments.items():
        waits = [times[i + 1] - times[i] for i in range(len(times) - 1)]
        answer[name] = [waits[0] if waits else None, waits[1:]]
    return answer
"""

PLAN = """
def plan_step(running, waiting, budget, kv):
    plan, left = [], budget
    def give(request):
        nonlocal left
        n = kv.num_missing_tokens(request)
        if left > 0:
            plan.append([request, min(n, left)])
            left -= min(n, left)
    later = []
    for request in running:
        if len(request.token_ids) == request.num_computed_tokens + 1:
            give(request)
        else:
            later.append(request)
    for request in later + waiting:
        give(request)
    return plan
"""

CLOCK = """
from minivllm.course.workspace import part
flops_and_bytes, Cost = part("0.1"), part("0.2")
class StepClock:
    def __init__(self, cfg, gpu, dtype_bytes):
        self.sizes = cfg, dtype_bytes
        self.gpu = gpu
    def chunk_time(self, tokens, context, decodes):
        cfg, size = self.sizes
        counts = [flops_and_bytes(cfg, tokens, context, size)]
        counts += [flops_and_bytes(cfg, 1, seen, size) for seen in decodes]
        flops = sum(f for f, _ in counts)
        one, two = (flops_and_bytes(cfg, 1, n, size)[1] for n in (1, 2))
        weights = one - 2 * (two - one)
        moved = sum(b for _, b in counts) - weights * len(decodes)
        return Cost(flops, moved).seconds(self.gpu)
    def budget(self, target, prompt_len, decodes):
        chunk = 0
        while chunk < prompt_len and self.chunk_time(chunk + 1, prompt_len, decodes) <= target:
            chunk += 1
        if chunk == 0:
            raise ValueError("too short")
        return chunk + len(decodes)
"""

FAIR = """
from minivllm.course.workspace import part
greedy = part("5.2")
def fair_plan_step(running, waiting, budget, kv):
    decodes = [r for r in running if kv.num_missing_tokens(r) < 2]
    others = [r for r in running if r not in decodes] + waiting
    if budget >= len(decodes):
        return greedy(running, waiting, budget, kv)
    order = list(decodes)
    order.sort(key=lambda r: -r.num_skipped_steps)
    if others and others[0].num_skipped_steps > 6:
        order = others[:1] + order
    plan = []
    for request in order:
        n = min(budget, kv.num_missing_tokens(request))
        if n > 0:
            plan.append((request, n))
        budget -= n
    return plan
"""

RIGHT = {"5.1": LATENCIES, "5.2": PLAN, "5.3": CLOCK, "5.4": FAIR}

# fmt: off
WRONG = [
    ("5.1", "only ITLs", "ttft runs from arrival to the first token",
     "[waits[0] if waits else None, waits[1:]]", "waits[1:]"),
    ("5.1", "TTFT from the first step", "ttft runs from arrival to the first token",
     "[record.arrival_time]", "[0.0]"),
    ("5.1", "begin of the step", "ttft runs from arrival to the first token",
     "append(step.time_end)", "append(step.time_start)"),
    ("5.1", "an ITL too many", "itls lie between neighbouring tokens", "waits[1:]]", "waits]"),
    ("5.1", "an ITL too few", "itls lie between neighbouring tokens", "waits[1:]]", "waits[2:]]"),
    ("5.1", "since arrival", "itls lie between neighbouring tokens", "- times[i] for", "- times[0] for"),
    ("5.1", "turned round", "ttft runs from arrival to the first token",
     "times[i + 1] - times[i]", "times[i] - times[i + 1]"),
    ("5.1", "chunks are tokens", "a chunk is no token", "step.sampled", "step.num_scheduled_tokens"),
    ("5.1", "0 without a token", "no token yet is none", "else None", "else 0.0"),
    ("5.1", "who has no token is missing", "no token yet is none",
     "for name, times in moments.items():",
     "for name, times in ((n, t) for n, t in moments.items() if len(t) > 1):"),
    ("5.1", "a pass for each request", "the steps are gone through once",
     "    for step in trace.steps:\n        for name in step.sampled:\n            moments",
     "    for name in moments:\n        for step in trace.steps:\n"
     "            if name in step.sampled: moments"),
    ("5.2", "names for requests", "every decode gets its token",
     "[request, min(n, left)]", "[request.request_id, min(n, left)]"),
    ("5.2", "a dict", "every decode gets its token", "return plan", "return dict(map(reversed, plan))"),
    ("5.2", "a decode for each budget", "every decode gets its token", "min(n, left)])", "left])"),
    ("5.2", "prompts as long as they like", "decodes come first wherever they stand",
     "min(n, left)])", "n])"),
    ("5.2", "decodes for nothing", "decodes come first wherever they stand",
     "    for request in later", "    left = budget\n    for request in later"),
    ("5.2", "in the order of the list", "decodes come first wherever they stand",
     "if len(request.token_ids) == request.num_computed_tokens + 1:", "if True:"),
    ("5.2", "prompts first", "a prompt gets what the decodes leave",
     "    later = []\n", "    later = []\n    for r in waiting: give(r)\n    waiting = []\n"),
    ("5.2", "waiting before running", "running prompts come before waiting ones",
     "later + waiting", "waiting + later"),
    ("5.2", "one prompt a step", "what one prompt leaves goes to the next",
     "later + waiting", "(later + waiting)[:1]"),
    ("5.2", "whole prompts only", "decodes come first wherever they stand",
     "if left > 0:", "if left >= n:"),
    ("5.2", "entries with 0", "nobody is there with no tokens", "if left > 0:", "if left >= 0:"),
    ("5.2", "decodes beyond the budget", "decodes keep to the budget",
     "            give(request)\n        else",
     "            plan.append([request, 1]); left -= 1\n        else"),
    ("5.2", "no decodes if budget is short", "decodes keep to the budget",
     "    later = []\n",
     "    later = []\n    if budget < len(running): running = []\n"),
    ("5.2", "tokens instead of kv", "kv says how much is missing",
     "kv.num_missing_tokens(request)", "len(request.token_ids) - request.num_computed_tokens"),
    ("5.2", "output decodes", "a request that starts again is a prompt",
     "if len(request.token_ids) == request.num_computed_tokens + 1:",
     "if len(request.token_ids) > getattr(request, 'num_prompt_tokens', len(request.token_ids) - 1)"
     " and (len(request.token_ids) == request.num_computed_tokens + 1"
     " or hasattr(request, 'num_prompt_tokens')):"),
    ("5.2", "takes from the queue", "the queues are left alone",
     "    for request in running:", "    while running:\n        request = running.pop(0)"),
    ("5.3", "no weights", "a chunk alone takes what lab 00 says",
     "weights * len(decodes)", "weights * (len(decodes) + 1)"),
    ("5.3", "chunk without context", "a chunk alone takes what lab 00 says",
     "tokens, context, size", "tokens, tokens, size"),
    ("5.3", "decodes for nothing", "decodes add their arithmetic", "for seen in decodes]", "for seen in []]"),
    ("5.3", "decodes see the prompt", "decodes add their arithmetic", "cfg, 1, seen", "cfg, 1, context"),
    ("5.3", "weights for everybody", "weights are read once in a step", " - weights * len(decodes)", ""),
    ("5.3", "two steps", "weights are read once in a step", "Cost(flops, moved).seconds(self.gpu)",
     "sum(Cost(f, b).seconds(self.gpu) for f, b in counts)"),
    ("5.3", "a bound each", "the step as a whole is bound by one of the two",
     "Cost(flops, moved).seconds(self.gpu)",
     "Cost(*counts[0]).seconds(self.gpu)"
     " + Cost(flops - counts[0][0], moved - counts[0][1]).seconds(self.gpu)"),
    ("5.3", "2 bytes", "the size of a number counts",
     "self.sizes = cfg, dtype_bytes", "self.sizes = cfg, 2"),
    ("5.3", "the chunk only", "the budget holds decodes and chunk",
     "return chunk + len(decodes)", "return chunk"),
    ("5.3", "one too many", "the budget holds decodes and chunk", "return chunk +", "return chunk + 1 +"),
    ("5.3", "the first chunk", "the budget holds decodes and chunk",
     "self.chunk_time(chunk + 1, prompt_len,", "self.chunk_time(chunk + 1, chunk + 1,"),
    ("5.3", "chunks without end", "a generous target takes the prompt whole",
     "chunk < prompt_len and self.chunk_time(chunk + 1, prompt_len,",
     "chunk < 10**3 and self.chunk_time(chunk + 1, max(prompt_len, chunk + 1),"),
    ("5.3", "a budget of no chunk", "one token may be all that fits", "if chunk == 0:", "if chunk < 0:"),
    ("5.3", "kept on the class", "two clocks share nothing", "self.gpu = gpu", "StepClock.gpu = gpu"),
    ("5.4", "always the list's first", "the longest unserved decode comes first",
     "    order.sort(key=lambda r: -r.num_skipped_steps)\n", ""),
    ("5.4", "served last first", "the longest unserved decode comes first",
     "-r.num_skipped_steps", "r.num_skipped_steps"),
    ("5.4", "always by patience", "with budget enough it is plan step",
     "if budget >= len(decodes):", "if budget > len(decodes) + 10:"),
    ("5.4", "never a prompt", "a prompt has its turn after seven skipped steps",
     "order = others[:1] + order", "pass"),
    ("5.4", "a prompt after the decodes", "a prompt has its turn after seven skipped steps",
     "order = others[:1] + order", "order = order + others[:1]"),
    ("5.4", "one step late", "a prompt has its turn after seven skipped steps",
     "num_skipped_steps > 6", "num_skipped_steps > 7"),
    ("5.4", "impatient", "a prompt has its turn after seven skipped steps",
     "num_skipped_steps > 6", "num_skipped_steps > 2"),
    ("5.4", "new ones first", "running prompts have the turn before waiting ones",
     "[r for r in running if r not in decodes] + waiting",
     "waiting + [r for r in running if r not in decodes]"),
    ("5.4", "a prompt alone", "nothing is left over", "order = others[:1] + order", "order = others[:1]"),
    ("5.4", "sorts the queue", "the queues are left alone",
     "    order = list(decodes)\n    order.sort(", "    running.sort(key=lambda r: -r.num_skipped_steps)\n"
     "    order = list(decodes)\n    order.sort("),
]
# fmt: on
