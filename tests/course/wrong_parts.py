"""Wrong answers that readers really give, each with the rule that must catch it.

One entry: (exercise id, the fault in words, the name of the first rule that fails, the part's source).
"""

CACHE = """
import torch
class ContiguousKVCache:
    def __init__(self, num_layers, max_len, num_kv_heads, head_dim, dtype=torch.float32, device="cpu"):
        self.max_len = max_len
        self.data = torch.zeros(num_layers, 2, max_len, num_kv_heads, head_dim, dtype=dtype, device=device)
        self.lengths = [0] * num_layers
    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + k.shape[0]
        if end > self.max_len:
            raise ValueError("too long")
        self.data[layer, 0, start:end] = k
        self.data[layer, 1, start:end] = v
        self.lengths[layer] = end
    def view(self, layer):
        return self.data[layer, 0, :self.lengths[layer]], self.data[layer, 1, :self.lengths[layer]]
    def clear(self):
        self.lengths = [0] * len(self.lengths)
"""

RECOMPUTE = """
from minivllm.attention.dense import causal_attention
def generate_recompute(model, prompt, n):
    tokens = list(prompt)
    for _ in range(n):
        logits = model(tokens, list(range(len(tokens))), lambda layer, q, k, v: causal_attention(q, k, v))
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt):]
"""

CACHED = """
from minivllm.attention.dense import causal_attention
def generate_cached(model, prompt, n, cache):
    def attend(layer, q, k, v):
        cache.append(layer, k, v)
        return causal_attention(q, *cache.view(layer))
    output = []
    new, start = list(prompt), 0
    while len(output) < n:
        logits = model(new, list(range(start, start + len(new))), attend)
        start += len(new)
        new = [int(logits.argmax())]
        output += new
    return output
"""

ONE_STEP = """
import torch
def attention_one_step(q, k, v):
    heads, dim = q.shape
    kv_heads = k.shape[1]
    q = q.reshape(kv_heads, heads // kv_heads, dim)
    scores = torch.einsum("ngd,tnd->ngt", q, k) / dim**0.5
    return torch.einsum("ngt,tnd->ngd", scores.softmax(-1), v).reshape(heads, dim)
"""

BATCHED = """
import torch
def batched_attention(q, k, v, lengths):
    seqs, heads, dim = q.shape
    kv_heads = k.shape[2]
    padding = torch.arange(k.shape[1])[None, :] >= torch.tensor(lengths)[:, None]
    q = q.reshape(seqs, kv_heads, heads // kv_heads, dim)
    scores = torch.einsum("sngd,stnd->sngt", q, k) / dim**0.5
    weights = scores.masked_fill(padding[:, None, None, :], float("-inf")).softmax(-1)
    v = v.masked_fill(padding[:, :, None, None], 0)
    return torch.einsum("sngt,stnd->sngd", weights, v).reshape(seqs, heads, dim)
"""

RIGHT = {"1.1": ONE_STEP, "1.2": RECOMPUTE, "1.3": CACHE, "1.4": CACHED, "1.5": BATCHED}


def _wrong(exercise_id: str, fault: str, rule: str, *changes: tuple[str, str]):
    source = RIGHT[exercise_id]
    for old, new in changes:
        assert old in source, (fault, old)
        source = source.replace(old, new)
    return exercise_id, fault, rule, source


WRONG = [
    _wrong("1.1", "not scaled", "heads of their own match the full matrix", (" / dim**0.5", "")),
    _wrong("1.1", "scaled by head_dim", "heads of their own match the full matrix", ("dim**0.5", "dim")),
    _wrong("1.1", "scaled for dim 8", "scores are scaled by head dim", ("dim**0.5", "8**0.5")),
    _wrong("1.1", "softmax over heads", "one token attends to itself", ("softmax(-1)", "softmax(0)")),
    _wrong(
        "1.1",
        "heads interleaved",
        "neighbouring heads share a kv head",
        (
            "q.reshape(kv_heads, heads // kv_heads, dim)",
            "q.reshape(heads // kv_heads, kv_heads, dim).mT.mT.transpose(0, 1)",
        ),
    ),
    _wrong(
        "1.1",
        "naive softmax",
        "large scores do not overflow",
        ("scores.softmax(-1)", "(scores.exp() / scores.exp().sum(-1, keepdim=True))"),
    ),
    _wrong(
        "1.1",
        "keys scaled in place",
        "the inputs are left alone",
        ("scores =", "k /= dim**0.5; scores ="),
        (", k) / dim**0.5", ", k)"),
    ),
    _wrong(
        "1.1",
        "view for reshape",
        "views into larger tensors work",
        ("    q = q.reshape", "    k = k.view(len(k), -1).view(k.shape)\n    q = q.reshape"),
    ),
    _wrong("1.2", "with the prompt", "it returns n new tokens", ("tokens[len(prompt):]", "tokens")),
    _wrong(
        "1.2", "tensors for tokens", "tokens are plain numbers", ("int(logits.argmax())", "logits.argmax()")
    ),
    _wrong("1.2", "argmin", "the first token is the most likely one", ("argmax", "argmin")),
    _wrong(
        "1.2",
        "one call too many",
        "token forwards are counted exactly",
        ("    return", "    model(tokens, list(range(len(tokens))), lambda layer, q, k, v: q)\n    return"),
    ),
    _wrong(
        "1.2",
        "positions from one",
        "positions count from zero",
        ("list(range(len(tokens)))", "list(range(1, len(tokens) + 1))"),
    ),
    _wrong("1.2", "prompt extended", "it returns n new tokens", ("list(prompt)", "prompt")),
    _wrong(
        "1.2",
        "prompt extended and cut",
        "the prompt is left alone",
        ("list(prompt)", "prompt"),
        ("tokens[len(prompt):]", "tokens[-n:]"),
    ),
    _wrong(
        "1.3",
        "length not advanced",
        "a view returns what was appended",
        ("        self.lengths[layer] = end\n", ""),
    ),
    _wrong(
        "1.3",
        "length set, not added",
        "a second append goes behind the first",
        ("self.lengths[layer] = end", "self.lengths[layer] = k.shape[0]"),
    ),
    _wrong(
        "1.3",
        "one length for all layers",
        "layers do not disturb each other",
        ("self.lengths[layer] = end", "self.lengths = [end] * len(self.lengths)"),
    ),
    _wrong(
        "1.3",
        "v into k's half",
        "a view returns what was appended",
        ("self.data[layer, 1, start:end] = v", "self.data[layer, 0, start:end] = v"),
    ),
    _wrong(
        "1.3",
        "last slot refused",
        "it can be filled to the last slot",
        ("end > self.max_len", "end >= self.max_len"),
    ),
    _wrong(
        "1.3",
        "no limit",
        "one token too many is refused whole",
        ("            raise ValueError", "            return None; raise ValueError"),
    ),
    _wrong(
        "1.3",
        "written before refused",
        "one token too many is refused whole",
        (
            "        if end > self.max_len:\n",
            "        if end > self.max_len:\n            self.lengths[layer] = self.max_len\n",
        ),
    ),
    _wrong(
        "1.3",
        "clears one layer",
        "clear makes room for the next request",
        ("self.lengths = [0] * len(self.lengths)", "self.lengths[0] = 0"),
    ),
    _wrong(
        "1.3",
        "shared by all caches",
        "two caches share nothing",
        ("class ContiguousKVCache:\n", "class ContiguousKVCache:\n    lengths = [0] * 99\n"),
        ("        self.lengths = [0] * num_layers\n", "        self.lengths[:] = [0] * 99\n"),
        ("self.lengths = [0] * len(self.lengths)", "self.lengths[:] = [0] * 99"),
    ),
    _wrong("1.3", "dtype forgotten", "it stores in its dtype", (", dtype=dtype", "")),
    _wrong(
        "1.4",
        "decode at position 0",
        "a new token gets the next position",
        ("        start += len(new)\n", ""),
    ),
    _wrong(
        "1.4",
        "append after attention",
        "the first token is the most likely one",
        (
            "        cache.append(layer, k, v)\n        return causal_attention(q, *cache.view(layer))",
            "        out = causal_attention(q, *cache.view(layer))\n"
            "        cache.append(layer, k, v)\n        return out",
        ),
    ),
    _wrong(
        "1.4",
        "position one too high",
        "a new token gets the next position",
        ("start += len(new)", "start += len(new) + (start == 0)"),
    ),
    _wrong(
        "1.4",
        "computes everything",
        "every token is computed once",
        (
            "        logits = model(new,",
            "        model(list(prompt), list(range(len(prompt))), lambda layer, q, k, v: q)\n"
            "        logits = model(new,",
        ),
    ),
    _wrong(
        "1.4",
        "last token fed too",
        "every token is computed once",
        ("    return output\n", "    model(new, [start], attend)\n    return output\n"),
    ),
    _wrong(
        "1.4",
        "hides a full cache",
        "a full cache is not hidden",
        (
            "        cache.append(layer, k, v)\n",
            "        try:\n            cache.append(layer, k, v)\n"
            "        except ValueError:\n            pass\n",
        ),
    ),
    _wrong(
        "1.5",
        "no mask",
        "empty slots take no weight",
        ('scores.masked_fill(padding[:, None, None, :], float("-inf"))', "scores"),
    ),
    _wrong("1.5", "masked with 0", "empty slots take no weight", ('float("-inf")', "0.0")),
    _wrong(
        "1.5",
        "NaN gets through",
        "not even nan gets through",
        ("    v = v.masked_fill(padding[:, :, None, None], 0)\n", ""),
    ),
    _wrong("1.5", "wipes the cache", "the cache is left alone", ("v.masked_fill(", "v.masked_fill_(")),
    _wrong("1.5", "mask off by one", "empty slots take no weight", (">= torch", "> torch")),
]
