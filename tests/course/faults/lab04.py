"""Lab 04: schedulers that starve, overrun, leak, or take blocks from the wrong one."""

FAULTS = {
    "sorts the answers": (
        "4.1",
        "enumerate(lengths)",
        "enumerate(sorted(lengths))",
        "Requests are taken in the order of the list",
    ),
    "starves large requests": (
        "4.2",
        "                if request is not self.waiting[0] or not self.can_admit(request):\n"
        "                    continue\n"
        "                self.waiting.pop(0)\n",
        "                if not self.can_admit(request):\n"
        "                    continue\n"
        "                self.waiting.remove(request)\n",
        "nobody overtakes",
    ),
    "overruns the budget": (
        "4.2",
        "self.place(request, n, plan)",
        "self.place(request, request.num_tokens - request.num_computed_tokens, plan)",
        "n is what plan_step says",
    ),
    "admits twice": ("4.2", "self.waiting.pop(0)\n", "self.waiting[0]\n", "leaves waiting"),
    "counts what has not run": (
        "4.2",
        "plan.chunks.append(Chunk(request, start, n, table))",
        "plan.chunks.append(Chunk(request, start, n, table))\n"
        "            request.num_computed_tokens = start + n",
        "num_computed_tokens changes in update",
    ),
    "forgets the prefix cache": (
        "4.2",
        "start = self.kv.open(request)",
        "self.kv.open(request)\n        start = request.num_computed_tokens",
        "start is what self.kv.open(request) returns",
    ),
    "leaks at abort": (
        "4.3",
        '            request.finish_reason = request.finish_reason or "abort"\n'
        "            self.finish(request)",
        '            request.finish_reason = request.finish_reason or "abort"\n'
        "            (self.waiting if request in self.waiting else self.running).remove(request)\n"
        "            request.status = Status.FINISHED",
        "frees its blocks at once",
    ),
    "goes on with the aborted": (
        "4.3",
        "            if request.is_finished:\n                continue\n",
        "",
        "aborted while its step runs",
    ),
    "waits for the batch": (
        "4.3",
        "        self.kv.settle(plan)\n",
        "        self.kv.settle(plan)\n"
        "        if any(r.num_output_tokens + 1 < r.max_tokens for r in self.running):\n"
        "            self.finish = lambda request: None\n",
        "the request leaves running",
    ),
    "promises nothing": (
        "4.4",
        "promised = sum(self.kv.blocks_missing(running) for running in self.running)",
        "promised = 0",
        "is promised to it",
    ),
    "keeps no reserve": ("4.4", "reserve = len(self.running)", "reserve = 0", "One block for each request"),
    "takes from the plan": ("4.5", "if running not in in_plan", "if running", "is no victim of it"),
    "keeps the lost tokens": (
        "4.5",
        "        victim.num_computed_tokens = 0\n",
        "",
        "A victim waits: status WAITING, num_computed_tokens 0",
    ),
    "sends victims to the end": (
        "4.5",
        "sorted([victim, *self.waiting], key=lambda request: request.arrival)",
        "[*self.waiting, victim]",
        "Back among the waiting in order of arrival",
    ),
    "takes from the first": ("4.5", "not in in_plan][-1]", "not in in_plan][0]", "The last in running"),
}
