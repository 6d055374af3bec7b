"""The command line: JSON alone on standard output, one line and exit code 2 for bad input."""

import json

import pytest

from minivllm.__main__ import main


def run(capsys, *argv):
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_generate_answers_paris_in_one_json_object(capsys, smollm2):
    code, out, _ = run(
        capsys,
        "generate",
        "--prompt",
        "What is the capital of France?",
        "--max-tokens",
        "24",
        "--temperature",
        "0",
        "--num-gpu-blocks-override",
        "32",
        "--json",
    )
    result = json.loads(out)
    assert code == 0
    assert set(result["outputs"][0]) >= {"prompt", "text", "token_ids", "finish_reason"}
    assert "Paris" in result["outputs"][0]["text"]
    assert result["outputs"][0]["prompt"] == "What is the capital of France?"
    assert result["stats"]["num_free_blocks"] == result["stats"]["num_blocks"] == 32


def test_fetch_says_where_the_model_is(capsys, smollm2):
    code, out, _ = run(capsys, "fetch", "--json")
    result = json.loads(out)
    assert code == 0 and result["path"] == str(smollm2) and result["bytes"] > 500_000_000


def test_chat_answers_one_message(capsys, smollm2):
    code, out, _ = run(
        capsys, "chat", "--message", "Say hello.", "--max-tokens", "4", "--temperature", "0", "--json"
    )
    assert code == 0 and len(json.loads(out)["outputs"]) == 1


@pytest.mark.parametrize(
    "argv,words",
    [
        (["generate", "--prompt", ""], ["prompt is empty"]),
        (["generate", "--prompt", "a", "--temperature", "-1"], ["temperature is -1.0"]),
        (["generate", "--prompt", "a", "--top-p", "1.5"], ["top_p is 1.5"]),
        (["generate", "--prompt", "a", "--max-tokens", "0"], ["max_tokens is 0"]),
        (
            ["generate", "--prompt", "a", "--max-tokens", "9000"],
            ["max_tokens is 9000", "max_model_len is 8192"],
        ),
        (["generate", "--prompt", "a", "--block-size", "0"], ["block_size is 0"]),
        (["generate", "--prompt", "a", "--model", "tests"], ["tests", "config.json"]),
        (["fetch", "--model", "no such/model name"], ["no such/model name", "SmolLM2-135M-Instruct"]),
        (["chat", "--json"], ["--message"]),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(capsys, argv, words, smollm2):
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == ""
    assert len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err
