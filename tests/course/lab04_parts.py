"""Parts of lab 04, right in a style that is not the solution's, and wrong ones made from them.

A wrong one is the right one with a piece replaced: (exercise id, the fault in words, the name of the first
rule that breaks, old text, new text).
"""

COST = """
def batch_cost(lengths, num_slots, continuous=False):
    busy_until, ends = {slot: 0 for slot in range(num_slots)}, []
    for number, length in enumerate(lengths):
        barrier = max(busy_until.values())
        if not continuous and number % num_slots == 0:
            busy_until = dict.fromkeys(busy_until, barrier)
        slot = min(busy_until, key=busy_until.get)
        busy_until[slot] += length
        ends.append(busy_until[slot])
    steps = max(ends) if ends else 0
    return steps, sum(steps - 0 for _ in range(num_slots)) - sum(lengths), ends
"""

STEP = """
from minivllm.request import Status
from minivllm.scheduler.base import Chunk, StepPlan, refuse_what_never_fits

class StepScheduler:
    def __init__(self, config, kv, plan_step):
        self.config, self.kv, self.plan_step = config, kv, plan_step
        self.waiting, self.running = [], []

    def add(self, request):
        refuse_what_never_fits(request, self.config.max_model_len, self.kv)
        self.waiting += [request]

    def can_admit(self, request):
        return not self.kv.num_free_blocks < self.kv.blocks_missing(request)

    def place(self, request, n, plan):
        begin = self.kv.open(request)
        table = self.kv.reserve(request, begin + n)
        if table:
            plan.chunks.append(Chunk(request=request, start=begin, num_tokens=n, table=table))

    def schedule(self):
        plan, refused = StepPlan(), False
        seats = self.config.max_num_seqs
        budget = self.config.max_num_batched_tokens
        everyone = self.plan_step(self.running, list(self.waiting), budget, self.kv)
        for request, n in everyone:
            if request in self.running:
                self.place(request, n, plan)
            elif not refused:
                first = self.waiting.index(request) == 0
                refused = not first or len(self.running) >= seats or not self.can_admit(request)
                if not refused:
                    self.waiting = [other for other in self.waiting if other is not request]
                    request.status = Status.RUNNING
                    self.running = self.running + [request]
                    self.place(request, n, plan)
        self.kv.give_moves_to(plan)
        return plan
"""

LOOP = """
from minivllm.course.workspace import part
from minivllm.request import Status
StepScheduler = part("4.2")

class Scheduler(StepScheduler):
    def update(self, plan, sampled):
        pairs = []
        self.kv.settle(plan)
        alive = [chunk for chunk in plan.chunks if not chunk.request.is_finished]
        for chunk in alive:
            chunk.request.num_computed_tokens = chunk.start + chunk.num_tokens
            for token in sampled.get(chunk.request.request_id) or ():
                chunk.request.append(token)
                pairs.append((chunk.request, token))
        for chunk in alive:
            if chunk.request.finish_reason:
                self.end(chunk.request)
        return pairs

    def abort(self, request):
        if request.status is Status.FINISHED:
            return
        if request.finish_reason is None:
            request.finish_reason = "abort"
        self.end(request)

    def end(self, request):
        self.kv.free(request)
        self.waiting = [other for other in self.waiting if other is not request]
        self.running = [other for other in self.running if other is not request]
        request.status = Status.FINISHED
"""

ADMIT = """
from minivllm.course.workspace import part
Scheduler = part("4.3")

class AdmittingScheduler(Scheduler):
    def can_admit(self, request):
        free = self.kv.num_free_blocks - self.kv.blocks_missing(request)
        for other in self.running:
            free -= self.kv.blocks_missing(other)
            free -= 1
        return free >= 0
"""

PREEMPT = """
from minivllm.course.workspace import part
from minivllm.request import Status
from minivllm.scheduler.base import Chunk
AdmittingScheduler = part("4.4")

class PreemptingScheduler(AdmittingScheduler):
    def place(self, request, n, plan):
        begin = self.kv.open(request)
        while True:
            table = self.kv.reserve(request, begin + n)
            if table is not None:
                plan.chunks.append(Chunk(request, begin, n, table))
                return
            safe = {chunk.request.request_id for chunk in plan.chunks}
            for victim in reversed(self.running):
                if victim.request_id not in safe:
                    break
            self.take_back(victim, plan)
            if victim is request:
                return

    def take_back(self, victim, plan):
        self.running.remove(victim)
        plan.num_lost_tokens += victim.num_computed_tokens
        plan.preempted.append(victim.request_id)
        self.kv.free(victim)
        victim.num_computed_tokens, victim.status = 0, Status.WAITING
        victim.num_preemptions += 1
        later = [i for i, other in enumerate(self.waiting) if other.arrival > victim.arrival]
        self.waiting.insert(later[0] if later else len(self.waiting), victim)
"""

RIGHT = {"4.1": COST, "4.2": STEP, "4.3": LOOP, "4.4": ADMIT, "4.5": PREEMPT}

NEXT_STEP = "who has all its tokens ends"

WRONG = [
    ("4.1", "mean, not maximum", "static batches follow each other", "max(busy", "min(busy"),
    (
        "4.1",
        "always continuous",
        "static batches follow each other",
        "if not continuous and",
        "if continuous and",
    ),
    ("4.1", "no barrier", "static batches follow each other", "number % num_slots == 0", "number == 0"),
    (
        "4.1",
        "idle of the busiest",
        "a slot without a request is idle",
        "0 for _ in range(num_slots)",
        "0 for _ in range(1)",
    ),
    (
        "4.1",
        "one slot",
        "a static batch lasts as long as its longest request",
        "min(busy_until, key=busy_until.get)",
        "0",
    ),
    (
        "4.2",
        "accepts all",
        "what can never fit is refused by add",
        "        refuse_what",
        "        len or refuse_what",
    ),
    ("4.2", "runs outside", "who is let in has the status running", "Status.RUNNING", "Status.WAITING"),
    ("4.2", "too many seats", "there are no more running than seats", "len(self.running) >= seats", "False"),
    (
        "4.2",
        "budget overrun",
        "each gets the tokens that plan step says",
        "self.place(request, n, plan)\n        self.kv",
        "self.place(request, request.num_tokens, plan)\n        self.kv",
    ),
    ("4.2", "no look at blocks", "who finds no room stays outside", "or not self.can_admit(request)", ""),
    (
        "4.2",
        "one block less",
        "room may be used up",
        "not self.kv.num_free_blocks <",
        "self.kv.num_free_blocks >",
    ),
    (
        "4.2",
        "overtakes",
        "nobody overtakes",
        "elif not refused:\n                first = self.waiting.index(request) == 0",
        "else:\n                first = True",
    ),
    (
        "4.2",
        "double admission",
        "who waits is let in",
        "self.waiting = [other for other in self.waiting if other is not request]",
        "pass",
    ),
    (
        "4.2",
        "from 0",
        "a chunk starts behind what is cached",
        "self.kv.open(request)",
        "self.kv.open(request) * 0",
    ),
    (
        "4.2",
        "counted too early",
        "schedule counts nothing as computed",
        "        if table:",
        "        request.num_computed_tokens = begin + n\n        if table:",
    ),
    ("4.2", "chunk without blocks", "who finds no block is left out of the plan", "if table:", "if True:"),
    ("4.2", "keeps the copies", "the plan takes the copies along", "self.kv.give_moves_to(plan)", ""),
    ("4.3", "starts from 0", "the next step goes on from there", "chunk.start + chunk", "chunk"),
    ("4.3", "token not kept", "a sampled token joins its request", "chunk.request.append(token)", ""),
    (
        "4.3",
        "id needed",
        "who has not caught up gets no token",
        ".get(chunk.request.request_id) or ()",
        "[chunk.request.request_id]",
    ),
    ("4.3", "nobody leaves", NEXT_STEP, "if chunk.request.finish_reason:", "if False:"),
    ("4.3", "leak at the end", "who ends gives its blocks back", "self.kv.free(request)", ""),
    (
        "4.3",
        "one a step",
        "several may end in one step",
        "self.end(chunk.request)",
        "self.end(chunk.request); break",
    ),
    ("4.3", "never settles", "the kv manager hears that the step has run", "self.kv.settle(plan)", ""),
    (
        "4.3",
        "reason overwritten",
        "abort keeps a reason that is there",
        "if request.finish_reason is None:",
        "if True:",
    ),
    (
        "4.3",
        "aborts twice",
        "aborting what has ended changes nothing",
        "if request.status is Status.FINISHED:",
        "if False:",
    ),
    (
        "4.3",
        "token for the dead",
        "who is aborted while the step runs stays out",
        "if not chunk.request.is_finished]",
        "]",
    ),
    (
        "4.3",
        "only running",
        "who waits can be aborted",
        "self.waiting = [other for other in self.waiting if other is not request]",
        "",
    ),
    ("4.4", "no reserve", "a reserve is kept for those who run", "            free -= 1\n", ""),
    (
        "4.4",
        "one reserve",
        "a reserve is kept for those who run",
        "            free -= 1\n        return free >= 0",
        "        return free >= bool(self.running)",
    ),
    (
        "4.4",
        "no promise",
        "the rest of a prompt is promised",
        "free -= self.kv.blocks_missing(other)",
        "pass",
    ),
    (
        "4.4",
        "first alone",
        "every running request has its promise",
        "in self.running:\n            free -= self.kv.blocks_missing(other)",
        "in self.running:\n            free -= self.kv.blocks_missing(other) * (other is self.running[0])",
    ),
    ("4.4", "one too careful", "the first may take the whole pool", "free >= 0", "free > 0"),
    (
        "4.4",
        "worst case",
        "the answer that is still to come is not counted",
        "free = self.kv.num_free_blocks -",
        "free = -(request.max_tokens // 20) * 9 + self.kv.num_free_blocks -",
    ),
    (
        "4.4",
        "takes blocks",
        "asking changes nothing",
        "        for other",
        "        self.kv.open(request)\n        for other",
    ),
    ("4.5", "victim in the plan", "whoever is in the plan is safe", "not in safe", "not in ()"),
    ("4.5", "earliest goes", "the latest makes room", "reversed(self.running)", "list(self.running)"),
    (
        "4.5",
        "nothing counted",
        "the plan says who was preempted and what is lost",
        "plan.num_lost_tokens +=",
        "lost =",
    ),
    (
        "4.5",
        "keeps its count",
        "a victim starts again from nothing",
        "victim.num_computed_tokens, victim.status = 0,",
        "victim.status =",
    ),
    ("4.5", "gives up", "the latest makes room", "if victim is request:", "if True:"),
    (
        "4.5",
        "keeps its blocks",
        "the latest makes room",
        "self.kv.free(victim)",
        "len(self.running) or self.kv.free(victim)",
    ),
    (
        "4.5",
        "to the end",
        "victims wait in order of arrival",
        "later[0] if later else len(self.waiting)",
        "len(self.waiting)",
    ),
    (
        "4.5",
        "half a victim",
        "several may have to go",
        "            self.take_back(victim, plan)",
        "            if plan.preempted: return\n            self.take_back(victim, plan)",
    ),
]
