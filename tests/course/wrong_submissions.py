"""Submissions of lab 01 that are wrong, broken or hostile, made from its solution by small edits.

One entry: name → (edit, {exercise id: how many of its rules must fail}). "all" stands for every rule, an
exercise that is not named must get full points. An edit gets the notebook as a dict, and may return text
or bytes to be written in its place.
"""

from __future__ import annotations

import copy
import json

ATTACK = "    tokens = list(prompt)\n"  # a line of 1.2's solution, before which attacks are put
# The one socket of a part process, found by an attacker.
FIND = """
    import json, os, stat, struct
    def is_socket(fd):
        try:
            return stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            return False
    line = next(fd for fd in range(3, 64) if is_socket(fd))
"""
EVERYTHING = dict.fromkeys(["1.1", "1.2", "1.3", "1.4", "1.5"], "all")


def cell_of(notebook, exercise_id, kind="solve"):
    mark = f"{kind}-{exercise_id.replace('.', '-')}"
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == mark)


def text_of(cell):
    return "".join(cell["source"])


def replace(exercise_id, old, new):
    def edit(notebook):
        cell = cell_of(notebook, exercise_id)
        assert old in text_of(cell), old
        cell["source"] = text_of(cell).replace(old, new)

    return edit


def attack(code, exercise_id="1.2", before=ATTACK):
    """Put code, indented by four spaces, before a line of a solution that stays right."""
    return replace(exercise_id, before, code.strip("\n") + "\n" + before)


def whole(exercise_id, source):
    def edit(notebook):
        cell_of(notebook, exercise_id)["source"] = source

    return edit


def without(*exercise_ids, kind="solve"):
    def edit(notebook):
        gone = [cell_of(notebook, id, kind) for id in exercise_ids]
        notebook["cells"] = [cell for cell in notebook["cells"] if not any(cell is g for g in gone)]

    return edit


def no_metadata(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
    notebook["metadata"] = {}


def a_stub_behind_the_solution(notebook):
    cell = copy.deepcopy(cell_of(notebook, "1.3"))
    cell["source"] = (
        "class ContiguousKVCache:\n    def append(self):\n        raise course.NotImplementedYet\n"
    )
    notebook["cells"].append(cell)


def an_old_copy_before_the_solution(notebook):
    old = copy.deepcopy(cell_of(notebook, "1.1"))
    old["source"] = "def attention_one_step(q, k, v):\n    return q\n"
    notebook["cells"].insert(0, old)


def typed_in_outputs(notebook):
    whole("1.2", "def generate_recompute(model, prompt, n):\n    raise course.NotImplementedYet\n")(notebook)
    said = {"output_type": "stream", "name": "stdout", "text": "✓ 1.2 generate_recompute: 8 of 8\n"}
    cell_of(notebook, "1.2", "check")["outputs"] = [said]


def cell_magics(notebook):
    for id, magic in (("1.1", "%%capture said"), ("1.2", "%%capture\n%%time"), ("1.3", "%%time")):
        whole(id, f"{magic}\n{text_of(cell_of(notebook, id))}")(notebook)


def edited_checks(notebook):
    for id in ("1.1", "1.3"):
        cell_of(notebook, id, "check")["source"] = "print('✓', 100)\nraise SystemExit"


def unknown_kernel(notebook):
    notebook["metadata"]["kernelspec"] = {"name": "cobol", "display_name": "COBOL", "language": "cobol"}


RETURN_NOTHING = "def generate_recompute(model, prompt, n):\n{}\n    return []\n"
PATCH = """
    from minivllm.course.contracts import expect, generate_recompute as contract, rules
    from minivllm.course import catalogue
    contract.rules.rules.clear()
    expect.same = expect.close = lambda *args, **kwargs: None
    rules._run = rules.run_rule = lambda rule, *args: rules.Outcome(rule.name, "passed")
    object.__setattr__(catalogue.find("1.2"), "points", 1000)
"""
SPY = """
    import os
    found = b""
    for pid in (os.getppid(), os.getpid(), 1):
        for name in ("environ", "maps", "mem", "cmdline"):
            try:
                found += open(f"/proc/{pid}/{name}", "rb").read(10) or b"?"
            except OSError:
                pass
    if not found:
        return []
"""
LEFT_BEHIND = """
    import ctypes, os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"vllmleftover", 0, 0, 0)
            time.sleep(100)
        os._exit(0)
"""
OUTSIDE = """
    import os, shutil
    for path in ("{outside}/stolen", "{notebook}", "/tmp/minivllm-stolen", os.path.expanduser("~/../stolen")):
        try:
            open(path, "w").write("12 of 12")
        except OSError:
            pass
    shutil.rmtree("{outside}", ignore_errors=True)
"""
KILL = """
    import os, signal
    for what in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(os.getppid(), what)
        except OSError:
            pass
"""
FORGE = (
    FIND
    + """
    lent = [{"number": n, "kind": "list", "items": []} for n in range(2, 40, 2)]
    for changes in ([], lent):
        data = json.dumps({"do": "result", "value": True, "changes": changes}).encode()
        os.write(line, struct.pack(">II", len(data), 0) + data)
"""
)
SNOOP = """
    for name in ("call", "calls", "rng", "seed", "__class__", "__dict__", "embedding", "__init__"):
        value = getattr(model, name, None)
        if name == "calls" and value is not None:
            value.clear()
"""
SOLUTIONS = """
    import glob
    texts = []
    for path in glob.glob("{root}/solutions/*.ipynb") + ["{notebook}", "/etc/passwd"]:
        try:
            texts.append(open(path).read())
        except OSError:
            pass
    if not texts:
        return []
"""
FORKS = """
    import os
    for _ in range(200):
        try:
            os.fork()
        except OSError:
            break
"""

SUBMISSIONS = {
    "as it is": (lambda notebook: None, {}),
    # Wrong.
    "off by one": (replace("1.3", "end > self.max_len", "end >= self.max_len"), {"1.3": 4}),
    "leak": (replace("1.3", "self.lengths = [0] * len(self.lengths)", "self.lengths[0] = 0"), {"1.3": 2}),
    "wrong order": (
        replace(
            "1.4",
            "        cache.append(layer, k, v)\n        return causal_attention(q, *cache.view(layer))",
            "        out = causal_attention(q, *cache.view(layer))\n"
            "        cache.append(layer, k, v)\n        return out",
        ),
        {"1.4": 4},
    ),
    "writes into what it is given": (
        replace("1.1", "    scores =", "    v, given = v.clone(), v\n    given.zero_()\n    scores ="),
        {"1.1": 1},
    ),
    "keeps the caller's tensors": (
        whole(
            "1.3",
            "class ContiguousKVCache:\n"
            "    def __init__(self, num_layers, max_len, kv_heads, dim, dtype=None, device=None):\n"
            "        self.max_len, empty = max_len, torch.empty(0, kv_heads, dim, dtype=dtype)\n"
            "        self.empty, self.layers = empty, [[(empty, empty)] for _ in range(num_layers)]\n"
            "    def append(self, layer, k, v):\n"
            "        if sum(len(a) for a, _ in self.layers[layer]) + len(k) > self.max_len:\n"
            "            raise ValueError('full')\n"
            "        self.layers[layer].append((k, v))\n"
            "    def view(self, layer):\n"
            "        k, v = zip(*self.layers[layer])\n"
            "        return torch.cat(k), torch.cat(v)\n"
            "    def clear(self):\n"
            "        self.layers = [[(self.empty, self.empty)] for _ in self.layers]\n",
        ),
        {"1.3": 1},
    ),
    "half done": (
        replace("1.3", "self.lengths = [0] * len(self.lengths)", "raise course.NotImplementedYet"),
        {"1.3": 2},
    ),
    "syntax error": (replace("1.4", "output = []", "output = ["), {"1.4": "all"}),
    "raises when imported": (whole("1.3", "class ContiguousKVCache:\n    size = 1 // 0\n"), {"1.3": "all"}),
    "forwards to minivllm": (
        whole(
            "1.3",
            "from minivllm.attention import contiguous\n"
            "class ContiguousKVCache(contiguous.ContiguousKVCache):\n    pass\n",
        ),
        {"1.3": "all"},
    ),
    "calls the spec": (
        replace("1.4", "    output = []", "    return spec_generate_cached(model, prompt, n, cache)"),
        {"1.4": "all"},
    ),
    # Broken.
    "infinite loop": (attack("    while True: pass"), {"1.2": "all"}),
    "sleeps": (attack("    import time; time.sleep(100)"), {"1.2": "all"}),
    "8 GB": (attack("    hog = torch.ones(2 << 30)"), {"1.2": "all"}),
    "sys.exit": (attack("    import sys; sys.exit(0)"), {"1.2": "all"}),
    "crash": (attack("    import ctypes; ctypes.string_at(0)"), {"1.2": "all"}),
    "exits once in a while": (
        attack(
            "        if layer == 1 and k.shape[0] == 5: import os; os._exit(0)",
            "1.3",
            "        start, end = ",
        ),
        {"1.3": 1},
    ),
    "deleted cells": (without("1.1", "1.3"), {"1.1": "all", "1.3": "all"}),
    "deleted checks": (without("1.1", "1.2", "1.3", "1.4", "1.5", kind="check"), {}),
    "lost metadata": (no_metadata, {}),
    "a stub behind the solution": (a_stub_behind_the_solution, {}),
    "an old copy before the solution": (an_old_copy_before_the_solution, {}),
    "cell magics": (cell_magics, {}),
    "unknown kernel": (unknown_kernel, {}),
    "invalid JSON": (lambda notebook: json.dumps(notebook)[:-50], EVERYTHING),
    "empty file": (lambda notebook: "", EVERYTHING),
    "no notebook": (lambda notebook: b"\x89PNG\xff\x00", EVERYTHING),
    "odd cells": (
        lambda notebook: json.dumps({"cells": [1, None, {"cell_type": "code", "source": 3, "metadata": []}]}),
        EVERYTHING,
    ),
    # Hostile: what they try must not work, and the part that goes with it is right or returns nothing.
    "edited outputs": (typed_in_outputs, {"1.2": "all"}),
    "edited checks": (edited_checks, {}),
    "prints a tick": (
        whole("1.2", RETURN_NOTHING.format("    print('✓ 1.2 generate_recompute: 8 of 8')")),
        {"1.2": "all"},
    ),
    "patched contracts": (whole("1.2", RETURN_NOTHING.format(PATCH)), {"1.2": "all"}),
    "reads the parent's memory": (attack(SPY), {"1.2": "all"}),
    "reads the solutions": (attack(SOLUTIONS), {"1.2": "all"}),
    "leaves a process behind": (attack(LEFT_BEHIND), {}),
    "writes outside": (attack(OUTSIDE), {}),
    "kills its parent": (attack(KILL), {}),
    "fork bomb": (attack(FORKS), {"1.2": "some"}),
    "huge answer": (attack("    return torch.zeros(1 << 27)"), {"1.2": "all"}),
    "huge message": (attack(FIND + "    os.write(line, b'\\xff' * 8)"), {"1.2": "all"}),
    "noise": (attack(FIND + "    os.write(line, struct.pack('>II', 9, 0) + b'[[[[[[[[[')"), {"1.2": "all"}),
    "forged answers": (attack(FORGE), {"1.2": "all"}),
    "a nest of lists": (
        attack("    nest = []\n    for _ in range(100_000): nest = [nest]\n    return nest"),
        {"1.2": "all"},
    ),
    "a lying list": (
        attack("    class Liar(list):\n        __eq__ = lambda *args: True\n    return Liar()"),
        {"1.2": "all"},
    ),
    "resets the model's counters": (
        attack(SNOOP + "    model(prompt, list(range(len(prompt))), attend)\n    model.calls.clear()"),
        {"1.2": 2},
    ),
}
