"""Lab 05: budgets overrun, prompts that push in, requests that starve, times that are off by one."""

FAULTS = {
    "an ITL too many": (
        "5.1",
        "gaps[1:]) for",
        "gaps) for",
        "first broken: itls lie between neighbouring tokens. n tokens have n − 1 gaps",
    ),
    "an ITL too few": (
        "5.1",
        "gaps[1:]) for",
        "gaps[2:]) for",
        "first broken: itls lie between neighbouring tokens. n tokens have n − 1 gaps",
    ),
    "the step's time for the wait": (
        "5.1",
        "step.time_end - since[name]",
        "step.time_end - max(since[name], step.time_start)",
        "A request waits from its arrival to the end of the first step that gives it a token",
    ),
    "chunks counted as tokens": (
        "5.1",
        "for name in step.sampled:",
        "for name in step.num_scheduled_tokens:",
        "a step that computes a piece of a prompt gives its request no token",
    ),
    "budget overrun": (
        "5.2",
        "        budget -= n\n",
        "",
        "Take n off the budget as you give it away.",
    ),
    "prefill first": (
        "5.2",
        "in decodes + prompts + waiting:",
        "in prompts + decodes + waiting:",
        "first broken: decodes come first wherever they stand. Decodes before prompts",
    ),
    "waiting before running": (
        "5.2",
        "in decodes + prompts + waiting:",
        "in decodes + waiting + prompts:",
        "Whoever runs holds memory already",
    ),
    "a chunk of 0 tokens": (
        "5.2",
        "if n == 0:",
        "if n < 0:",
        "Who gets nothing in this step is left out of the plan.",
    ),
    "more tokens than are missing": (
        "5.2",
        "min(kv.num_missing_tokens(request), budget)",
        "budget if request in prompts + waiting else min(1, budget)",
        "first broken: a short prompt gets what it misses. min(what it misses",
    ),
    "decodes dropped when the budget is short": (
        "5.2",
        "    plan = []\n",
        "    plan = []\n    if budget < len(decodes):\n        decodes = []\n",
        "With more of them than budget, some wait",
    ),
    "one prompt a step": (
        "5.2",
        "in decodes + prompts + waiting:",
        "in decodes + (prompts + waiting)[:1]:",
        "go on with the next request until nothing is left",
    ),
    "the scheduler's list taken apart": (
        "5.2",
        "    plan = []\n",
        "    plan = []\n    running.sort(key=kv.num_missing_tokens)\n",
        "first broken: the queues are left alone",
    ),
    "weights read for every decode": (
        "5.3",
        "num_bytes += more_bytes - weights",
        "num_bytes += more_bytes",
        "One step reads the weights once, whoever is in it",
    ),
    "a budget for the first chunk": (
        "5.3",
        "self.chunk_time(chunk, prompt_len, decodes)",
        "self.chunk_time(chunk, chunk, decodes)",
        "first broken: the budget holds decodes and chunk",
    ),
    "decodes not in the budget": (
        "5.3",
        "return len(decodes) + fits",
        "return fits",
        "first broken: the budget holds decodes and chunk",
    ),
    "starving prompt": (
        "5.4",
        "return plan_step([], prompts + in_turn, budget, kv)",
        "return plan_step([], in_turn + prompts, budget, kv)",
        "skipped 7 times in a row, it comes in the eighth step",
    ),
    "starving decode": (
        "5.4",
        "num_skipped_steps, reverse=True)",
        "num_skipped_steps)",
        "first broken: the longest unserved decode comes first",
    ),
    "patience with a long queue only": (
        "5.4",
        "if len(decodes) <= budget:",
        "if len(decodes) < budget:",
        "first broken: with budget enough it is plan step",
    ),
}
