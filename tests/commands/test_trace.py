"""`python -m minivllm trace`: what it runs, what it writes, and what it refuses before it runs anything."""

import json
import re

import pytest

from minivllm.__main__ import main
from minivllm.commands import trace as command
from minivllm.llm import LLM


def run(capsys, *argv):
    code = main(["trace", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def page_data(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search('<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_both_files_are_written_and_tell_the_same_run(capsys, tmp_path, smollm2):
    html, perfetto = tmp_path / "run.html", tmp_path / "run.json"
    code, out, _ = run(capsys, "--html", html, "--perfetto", perfetto, "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["html"], result["perfetto"]) == (str(html), str(perfetto))
    data = page_data(html)
    assert len(data["steps"]["start"]) == result["num_steps"] == result["stats"]["num_steps"]
    events = json.loads(perfetto.read_text())["traceEvents"]
    num_chunks = sum(n if isinstance(n, int) else len(n) for *_, n in data["runs"])
    assert sum(event["ph"] == "X" for event in events) == num_chunks


def test_the_workload_shows_preemption_prefix_hits_shared_blocks_and_chunks(capsys, tmp_path, smollm2):
    html = tmp_path / "run.html"
    code, out, _ = run(capsys, "--html", html)
    assert code == 0 and str(html) in out and "browser" in out
    data = page_data(html)
    happened = {data["change_kinds"][change[0]] for step in data["changes"] for change in step if change[2:]}
    assert happened >= {"append", "hit", "cache", "evict"}
    assert any(request["preempted"] for request in data["requests"])
    assert [r["letter"] for r in data["requests"] if r["letter"][0] == "C"] == ["C", "C1", "C2"]
    assert any(isinstance(n, list) and len(n) > 1 for *_, n in data["runs"]), "a prompt in several chunks"


def test_the_workload_schedules_the_same_in_every_run(checkpoints, monkeypatch):
    def prompt(_, question):
        return {"prompt_token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, *(ord(c) % 100 for c in question[:20])]}

    monkeypatch.setattr(command, "_prompt", prompt)
    runs = []
    for _ in range(2):
        llm = LLM(checkpoints["llama"], skip_tokenizer_init=True, **command.SETTINGS)
        command.run_workload(llm.engine)
        runs.append([(step.num_scheduled_tokens, step.block_tables) for step in llm.trace.steps])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "argv,words",
    [
        ([], ["--html", "--perfetto"]),
        (["--html", "no/such/folder/a.html"], ["no/such/folder/a.html", "no directory"]),
        (["--html", "tests"], ["tests is a directory"]),
        (["--html", "a.html", "--num-gpu-blocks-override", "0"], ["num_gpu_blocks_override is 0"]),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(capsys, argv, words):
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == "" and len(err.strip().splitlines()) == 1
    assert all(word in err for word in words)
