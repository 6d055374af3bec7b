"""Answers to lab 00: right ones in a style of their own, and wrong ones that readers really give.

A wrong one is the right one with a piece replaced: (exercise id, the fault in words, the name of the first
rule that fails, the piece, what stands there instead).
"""

FORWARD = """
def flops_and_bytes(cfg, num_tokens, context_len, dtype_bytes, batch=1):
    q, kv = cfg.num_heads * cfg.head_dim, cfg.num_kv_heads * cfg.head_dim
    attention = 2 * cfg.hidden_size * q + 2 * cfg.hidden_size * kv
    mlp = 3 * cfg.hidden_size * cfg.intermediate_size
    head = cfg.hidden_size * cfg.vocab_size
    keys = sum(range(context_len - num_tokens + 1, context_len + 1))
    flops = 2 * cfg.num_layers * (attention + mlp) * num_tokens + 2 * head
    flops += cfg.num_layers * 4 * q * keys
    weights = cfg.num_layers * (attention + mlp) + head
    moved = weights + batch * 2 * cfg.num_layers * kv * (context_len + num_tokens)
    return batch * flops, moved * dtype_bytes
"""

COST = """
class Cost:
    def __init__(self, flops, num_bytes):
        self.work = flops, num_bytes
    def _times(self, gpu):
        return self.work[0] / gpu.flops, self.work[1] / gpu.bandwidth
    def arithmetic_intensity(self):
        return self.work[0] / self.work[1]
    def is_compute_bound(self, gpu):
        computing, moving = self._times(gpu)
        return computing >= moving
    def seconds(self, gpu):
        return max(self._times(gpu))
"""

KV = """
def kv_bytes_per_token(cfg, dtype_bytes):
    return dtype_bytes * cfg.head_dim * cfg.num_kv_heads * cfg.num_layers * 2
"""

FIT = """
def max_concurrent_requests(gpu_bytes, weight_bytes, cfg, seq_len, dtype_bytes=2):
    free = gpu_bytes - weight_bytes
    if free < 0:
        return 0
    return free // (seq_len * 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * dtype_bytes)
"""

DIVISION = "free // (seq_len * 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * dtype_bytes)"

FLOORS = """
from minivllm.course.workspace import part
Cost, flops_and_bytes = part("0.2"), part("0.1")
def ttft_and_itl_floor(cfg, gpu, prompt_len, batch):
    prefill = flops_and_bytes(cfg, prompt_len, prompt_len, 2)
    step = flops_and_bytes(cfg, 1, prompt_len + 1, 2, batch)
    return [Cost(*prefill).seconds(gpu), Cost(*step).seconds(gpu)]
"""

RIGHT = {"0.1": FORWARD, "0.2": COST, "0.3": KV, "0.4": FIT, "0.5": FLOORS}

# fmt: off
WRONG = [
    ("0.1", "bytes first", "the mlp is three matrices", "batch * flops, moved * dtype_bytes", "moved, flops"),
    ("0.1", "only FLOPs", "it returns flops and bytes", ", moved * dtype_bytes", ""),
    ("0.1", "a multiply-add is one", "the mlp is three matrices", "= 2 * cfg.num_layers", "= cfg.num_layers"),
    ("0.1", "no gate", "the mlp is three matrices", "3 * cfg.hidden", "2 * cfg.hidden"),
    ("0.1", "tokens forgotten", "the mlp is three matrices", "* num_tokens + 2", "+ 2"),
    ("0.1", "layers forgotten", "the mlp is three matrices", "2 * cfg.num_layers * (att", "2 * (att"),
    ("0.1", "k and v as wide as q", "keys and values are as wide as the kv heads",
     "* cfg.hidden_size * kv", "* cfg.hidden_size * q"),
    ("0.1", "q as wide as hidden", "queries are as wide as all heads",
     "2 * cfg.hidden_size * q", "2 * cfg.hidden_size ** 2"),
    ("0.1", "no o", "queries are as wide as all heads", "2 * cfg.hidden_size * q", "cfg.hidden_size * q"),
    ("0.1", "head for every token", "the output layer runs once for each request",
     "2 * head", "2 * head * num_tokens"),
    ("0.1", "no head", "the output layer runs once for each request", "+ 2 * head", ""),
    ("0.1", "head once a batch", "the output layer runs once for each request",
     "+ 2 * head", "+ 2 * head / batch"),
    ("0.1", "scores without values", "a query pays for every key of its context",
     "cfg.num_layers * 4 * q", "cfg.num_layers * 2 * q"),
    ("0.1", "attention of KV heads", "a query pays for every key of its context",
     "4 * q * keys", "4 * kv * keys"),
    ("0.1", "no attention", "a query pays for every key of its context", "4 * q * keys", "0"),
    ("0.1", "full square", "a prompt token sees itself and what is before it",
     "sum(range(context_len - num_tokens + 1, context_len + 1))", "num_tokens * context_len"),
    ("0.1", "does not see itself", "a prompt token sees itself and what is before it",
     "num_tokens + 1, context_len + 1", "num_tokens, context_len"),
    ("0.1", "context without the new", "a prompt token sees itself and what is before it",
     "range(context_len - num_tokens + 1, context_len + 1)",
     "range(context_len + 1, context_len + num_tokens + 1)"),
    ("0.1", "cached keys forgotten", "a chunk sees what was cached before it",
     "sum(range(context_len - num_tokens + 1, context_len + 1))",
     "sum(range(1, num_tokens + 1)) + (context_len - num_tokens) * (num_tokens == 1)"),
    ("0.1", "weights for each request", "weights are read once whoever is there",
     "return batch * flops, moved", "return batch * flops, batch * moved"),
    ("0.1", "weights for each token", "weights are read once whoever is there",
     "(attention + mlp) + head\n", "(attention + mlp) * num_tokens + head\n"),
    ("0.1", "head not read", "weights are read once whoever is there", "+ mlp) + head\n", "+ mlp)\n"),
    ("0.1", "cache not read", "the cache of every request is read",
     "(context_len + num_tokens)", "num_tokens"),
    ("0.1", "one cache for all", "the cache of every request is read", "batch * 2 * cfg", "2 * cfg"),
    ("0.1", "keys without values", "the cache of every request is read", "batch * 2 * cfg", "batch * cfg"),
    ("0.1", "read by every query", "the cache of every request is read",
     "(context_len + num_tokens)", "(context_len * num_tokens + num_tokens)"),
    ("0.1", "new ones not written", "new keys and values are written",
     "(context_len + num_tokens)", "context_len"),
    ("0.1", "new ones not read", "new keys and values are written",
     "(context_len + num_tokens)", "(context_len + num_tokens - num_tokens)"),
    ("0.1", "always 2 bytes", "bytes follow the size of a number", "* dtype_bytes", "* 2"),
    ("0.1", "FLOPs of one request", "the output layer runs once for each request",
     "return batch * ", "return "),
    ("0.2", "bytes a flop", "intensity is flops for each byte",
     "work[0] / self.work[1]", "work[1] / self.work[0]"),
    ("0.2", "whole intensity", "intensity is flops for each byte",
     "[0] / self.work[1]", "[0] // self.work[1]"),
    ("0.2", "turned round", "much arithmetic on few bytes is compute bound", ">= moving", "< moving"),
    ("0.2", "always", "little arithmetic on many bytes is not", ">= moving", ">= 0"),
    ("0.2", "bandwidth ignored", "much arithmetic on few bytes is compute bound",
     "self.work[1] / gpu.bandwidth", "self.work[1]"),
    ("0.2", "one ridge for all", "each machine has a ridge of its own",
     "computing >= moving", "self.work[0] / self.work[1] >= 10"),
    ("0.2", "ridge left out", "the ridge itself counts as compute bound", ">= moving", "> moving"),
    ("0.2", "the sum", "compute bound work takes the time of its flops", "max(self", "sum(self"),
    ("0.2", "the shorter", "compute bound work takes the time of its flops", "max(self", "min(self"),
    ("0.2", "only computing", "memory bound work takes the time of its bytes",
     "max(self._times(gpu))", "self._times(gpu)[0]"),
    ("0.2", "kept on the class", "two costs share nothing", "self.work = ", "Cost.work = "),
    ("0.3", "keys without values", "a token leaves a key and a value", " * 2\n", "\n"),
    ("0.3", "one layer", "every layer keeps its own", "* cfg.num_layers", ""),
    ("0.3", "query heads", "only kv heads count", "num_kv_heads", "num_heads"),
    ("0.3", "one KV head", "only kv heads count", "* cfg.num_kv_heads", ""),
    ("0.3", "width guessed", "a token leaves a key and a value",
     "cfg.head_dim", "(cfg.hidden_size // cfg.num_heads)"),
    ("0.3", "head_dim of 16", "the width of a head is head dim", "cfg.head_dim", "16"),
    ("0.3", "always 2 bytes", "a token leaves a key and a value", "dtype_bytes * cfg", "2 * cfg"),
    ("0.3", "no fractions", "every number takes dtype bytes",
     "return dtype_bytes", "return int(dtype_bytes)"),
    ("0.4", "weights ignored", "weights come off first", "gpu_bytes - weight_bytes", "gpu_bytes"),
    ("0.4", "one layer", "a request takes its tokens in all layers", "cfg.num_layers", "1"),
    ("0.4", "query heads", "a request takes its tokens in all layers", "num_kv_heads", "num_heads"),
    ("0.4", "one token", "a request takes its tokens in all layers", "seq_len * 2", "2"),
    ("0.4", "not whole", "a request takes its tokens in all layers", "free // (", "free / ("),
    ("0.4", "rounded", "a part of a request is none",
     f"return {DIVISION}", f"return round({DIVISION.replace('//', '/')})"),
    ("0.4", "one too few", "a request takes its tokens in all layers",
     "return free // (", "return (free - 1) // ("),
    ("0.4", "one too many", "a request takes its tokens in all layers", "return free", "return 1 + free"),
    ("0.4", "negative", "no request runs where the weights do not fit", "free < 0", "free < -10**12"),
    ("0.4", "always 2 bytes", "the size of a number counts", "* dtype_bytes)", "* 2)"),
    ("0.5", "one number", "it returns two times", "return [Cost(*prefill).seconds(gpu), ", "return [*[], "),
    ("0.5", "turned round", "first token waits for the arithmetic of the prompt",
     "return [Cost(*prefill).seconds(gpu), Cost(*step).seconds(gpu)]",
     "return [Cost(*step).seconds(gpu), Cost(*prefill).seconds(gpu)]"),
    ("0.5", "prompt token by token", "first token waits for the arithmetic of the prompt",
     "prefill = flops_and_bytes(cfg, prompt_len,", "prefill = flops_and_bytes(cfg, 1,"),
    ("0.5", "fp32", "first token waits for the weights too",
     "prompt_len, prompt_len, 2)", "prompt_len, prompt_len, 4)"),
    ("0.5", "all prompts at once", "first token does not wait for the others",
     "prompt_len, prompt_len, 2)", "prompt_len, prompt_len, 2, batch)"),
    ("0.5", "without the new token", "a decode step reads prompt and new token",
     "prompt_len + 1", "prompt_len"),
    ("0.5", "context forgotten", "a decode step reads prompt and new token", "prompt_len + 1", "1"),
    ("0.5", "fp32 in decode", "a decode step reads prompt and new token", "2, batch)", "4, batch)"),
    ("0.5", "batch of one", "a batch shares the weights and not the cache", "2, batch)", "2)"),
    ("0.5", "request by request", "a batch shares the weights and not the cache",
     "Cost(*step).seconds(gpu)", "batch * Cost(*flops_and_bytes(cfg, 1, prompt_len + 1, 2)).seconds(gpu)"),
    ("0.5", "decode always memory-bound", "a large batch waits for arithmetic",
     "Cost(*step).seconds(gpu)", "step[1] / gpu.bandwidth"),
]
# fmt: on
