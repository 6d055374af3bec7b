"""The public face: inputs and outputs of `LLM`, stopping, refusals, and what an interrupt leaves."""

import pytest

from minivllm import LLM, EngineConfig, Parts, SamplingParams
from minivllm.kv.blocks import BlockPool

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(checkpoints):
    return LLM(
        checkpoints["llama"],
        skip_tokenizer_init=True,
        num_gpu_blocks_override=16,
        block_size=4,
        max_model_len=64,
    )


@pytest.fixture(scope="module")
def smol(smollm2):
    return LLM(str(smollm2), num_gpu_blocks_override=64, max_model_len=512)


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def test_outputs_come_in_the_order_of_the_prompts(llm):
    prompts = [[5, 6, 7], [9] * 20, [3]]
    together = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [o.prompt_token_ids for o in together] == prompts
    assert tokens(together) == [tokens(llm.generate(p, GREEDY, use_tqdm=False))[0] for p in prompts]


def test_sampling_params_may_be_one_each(llm):
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (2, 5)]
    assert [len(t) for t in tokens(llm.generate([[1], [2]], params, use_tqdm=False))] == [2, 5]
    with pytest.raises(ValueError, match="2 prompts but 1 sampling_params"):
        llm.generate([[1], [2]], params[:1])


@pytest.mark.parametrize(
    "prompt,message",
    [
        ([], "the prompt is empty"),
        ({"prompt_token_ids": []}, "the prompt is empty"),
        ([3, 160], "token id 160; ids go from 0 to 159"),
        ([-1], "token id -1"),
        ([1.5], "token id 1.5"),
        ("text", "needs a tokenizer"),
        ({"tokens": [1]}, "needs prompt or prompt_token_ids"),
        ([1] * 60, "max_model_len is 64"),
    ],
)
def test_bad_prompt_is_refused_by_name_and_the_others_go_on(llm, prompt, message):
    engine = llm.engine
    running = engine.add_request([1, 2, 3], GREEDY)
    engine.step()
    with pytest.raises(ValueError, match=message):
        llm.generate([[4], prompt] if prompt != [] else {"prompt_token_ids": []}, GREEDY, use_tqdm=False)
    finished = []
    while engine.has_unfinished_requests:
        finished += [o.request_id for o in engine.step() if o.finished]
    assert finished == [running]
    assert llm.stats()["num_free_blocks"] == 16


def test_prompt_longer_than_the_pool_is_refused_with_the_numbers(checkpoints):
    small = LLM(checkpoints["llama"], skip_tokenizer_init=True, num_gpu_blocks_override=3, block_size=4)
    with pytest.raises(ValueError, match="takes 4 KV blocks of 4, the pool has 3"):
        small.generate([1] * 10, SamplingParams(max_tokens=4))
    longest = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    assert len(tokens(small.generate([1] * 10, longest, use_tqdm=False))[0]) == 3


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"block_size": 0}, "block_size is 0"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"scheduler": "magic"}, "scheduler is 'magic'; it must be one of continuous, static"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization is 1.5"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size is 2"),
        ({"blok_size": 4}, "unknown setting 'blok_size'"),
    ],
)
def test_bad_setting_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig.from_kwargs(**settings)


def test_model_len_beyond_the_model_is_refused(checkpoints):
    with pytest.raises(ValueError, match="max_model_len is 600, the model goes to 512"):
        LLM(checkpoints["llama"], skip_tokenizer_init=True, max_model_len=600)
    with pytest.raises(ValueError, match="without chunked prefill"):
        LLM(
            checkpoints["llama"],
            skip_tokenizer_init=True,
            enable_chunked_prefill=False,
            max_num_batched_tokens=8,
        )


def test_interrupt_leaves_no_request_and_no_block_behind(llm, monkeypatch):
    engine = llm.engine
    original, calls = engine.executor.execute, []

    def interrupted(plan):
        calls.append(plan)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(plan)

    expected = tokens(llm.generate([[1] * 9, [2] * 9], GREEDY, use_tqdm=False))
    monkeypatch.setattr(engine.executor, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1] * 9, [2] * 9], GREEDY, use_tqdm=False)
    monkeypatch.undo()
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]
    assert not engine.has_unfinished_requests
    engine.scheduler.check()
    assert tokens(llm.generate([[1] * 9, [2] * 9], GREEDY, use_tqdm=False)) == expected


@pytest.fixture
def ctrl_c_works():
    """A shell starts what runs in the background with Ctrl-C ignored."""
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_at_any_moment_leaves_the_pool_clean(llm, ctrl_c_works):
    import signal
    import threading
    import time

    prompts = [[i, 2, 3] * 4 for i in range(4)]
    expected = tokens(llm.generate(prompts, GREEDY, use_tqdm=False))
    interrupted = 0
    for attempt in range(40):
        timer = threading.Timer(0.0007 * attempt, signal.raise_signal, [signal.SIGINT])
        try:
            timer.start()
            llm.generate(prompts, GREEDY, use_tqdm=False)
            timer.join()
            time.sleep(0.001)  # a signal that came after the end is taken here
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        llm.engine.scheduler.check()
        assert llm.stats()["num_free_blocks"] == 16 and not llm.engine.has_unfinished_requests
    assert interrupted > 20
    assert tokens(llm.generate(prompts, GREEDY, use_tqdm=False)) == expected
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_step_that_failed_can_be_repeated(llm, monkeypatch):
    engine = llm.engine
    expected = tokens(llm.generate([7] * 10, GREEDY, use_tqdm=False))[0]
    engine.add_request([7] * 10, GREEDY)
    engine.step()
    monkeypatch.setattr(engine.executor, "execute", lambda plan: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.step()
    monkeypatch.undo()
    while engine.has_unfinished_requests:
        (output,) = engine.step()
    assert output.outputs[0].token_ids == expected


def test_abort_returns_what_there_is_and_frees_the_blocks(llm):
    engine = llm.engine
    request_id = engine.add_request([1, 2, 3], GREEDY)
    engine.step()
    output = engine.abort(request_id)
    assert (output.finished, output.outputs[0].finish_reason, len(output.outputs[0].token_ids)) == (
        True,
        "abort",
        1,
    )
    assert engine.abort(request_id) is None
    assert llm.stats()["num_free_blocks"] == 16


def test_seeded_tokens_do_not_depend_on_the_batch(llm):
    def params(i):
        return SamplingParams(temperature=1.0, seed=i, max_tokens=10, ignore_eos=True)

    prompts = [[i, i + 1, i + 2] for i in range(6)]
    together = tokens(llm.generate(prompts, [params(i) for i in range(6)], use_tqdm=False))
    alone = [tokens(llm.generate(p, params(i), use_tqdm=False))[0] for i, p in enumerate(prompts)]
    assert together == alone
    assert tokens(llm.generate(prompts[0], params(99), use_tqdm=False))[0] != alone[0]


def test_stop_token_ends_the_request_unless_min_tokens_holds_it_back(llm):
    free = tokens(llm.generate([5, 6, 7], GREEDY, use_tqdm=False))[0]
    stop = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, stop_token_ids=[free[2]])
    (output,) = llm.generate([5, 6, 7], stop, use_tqdm=False)
    first = free.index(free[2])
    assert output.outputs[0].token_ids == free[: first + 1]
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", free[2])
    stop = SamplingParams(
        temperature=0, max_tokens=6, min_tokens=5, ignore_eos=True, stop_token_ids=[free[2]]
    )
    (output,) = llm.generate([5, 6, 7], stop, use_tqdm=False)
    assert len(output.outputs[0].token_ids) >= 5 and free[2] not in output.outputs[0].token_ids[:5]


def test_stop_string_is_found_across_token_borders_and_cut_off(smol):
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    free = smol.chat(chat, SamplingParams(temperature=0, max_tokens=24), use_tqdm=False)[0].outputs[0]
    assert "Paris" in free.text
    stop = "France is P"
    cut = smol.chat(chat, SamplingParams(temperature=0, max_tokens=24, stop=stop), use_tqdm=False)[0].outputs[
        0
    ]
    assert cut.text == free.text[: free.text.index(stop)]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)
    assert smol.stats()["num_free_blocks"] == 64


def test_partial_text_never_shows_the_beginning_of_a_stop_string(smol):
    engine, shown = smol.engine, []
    params = SamplingParams(temperature=0, max_tokens=24, stop="France is P")
    text = smol.tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}])
    engine.add_request({"prompt_token_ids": smol.tokenizer.encode(text, add_special_tokens=False)}, params)
    while engine.has_unfinished_requests:
        shown += [output.outputs[0].text for output in engine.step()]
    assert all(later.startswith(earlier) for earlier, later in zip(shown, shown[1:], strict=False))


def test_logprobs_come_with_text_and_rank(smol):
    params = SamplingParams(temperature=0, max_tokens=3, logprobs=2)
    completion = smol.generate("The capital of France is", params, use_tqdm=False)[0].outputs[0]
    assert len(completion.logprobs) == 3
    for token, row in zip(completion.token_ids, completion.logprobs, strict=True):
        assert row[token].rank == 1 and row[token].logprob <= 0 and len(row) == 2
        assert row[token].decoded_token == smol.tokenizer.token_text(token)
    assert completion.cumulative_logprob == pytest.approx(
        sum(row[t].logprob for t, row in zip(completion.token_ids, completion.logprobs, strict=True))
    )


def test_metrics_are_in_order(llm):
    metrics = llm.generate([1] * 5, GREEDY, use_tqdm=False)[0].metrics
    times = [metrics.arrival_time, metrics.first_scheduled_time, *metrics.token_times]
    assert times == sorted(times) and metrics.finished_time == times[-1]
    assert len(metrics.inter_token_latencies) == 5 and metrics.time_to_first_token > 0


def test_a_readers_part_runs_in_the_engine_with_the_same_tokens(checkpoints, llm):
    class FifoPool(BlockPool):
        allocations = 0

        def allocate(self, n):
            FifoPool.allocations += n
            blocks = super().allocate(n)
            self._free.insert(0, self._free.pop()) if self._free else None
            return blocks

    parts = Parts(block_pool=FifoPool)
    assert parts.replaced() == ["block_pool"]
    own = LLM(
        checkpoints["llama"],
        parts=parts,
        skip_tokenizer_init=True,
        num_gpu_blocks_override=16,
        block_size=4,
        max_model_len=64,
    )
    prompts = [[1] * 9, [2] * 5]
    assert tokens(own.generate(prompts, GREEDY, use_tqdm=False)) == tokens(
        llm.generate(prompts, GREEDY, use_tqdm=False)
    )
    assert FifoPool.allocations > 0 and own.stats()["num_free_blocks"] == 16


def test_engine_and_bookkeeping_import_without_widgets_and_torch():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['ipywidgets'] = None\n"
        "import minivllm, minivllm.kv.manager, minivllm.scheduler.continuous\n"
        "import minivllm.trace, minivllm.parts\n"
        "from tests.sim import Sim\n"
        "sim = Sim(); sim.add(9, 4); sim.add(3, 7); print(sim.run())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 0
