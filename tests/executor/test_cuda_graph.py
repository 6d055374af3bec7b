"""Decode graphs on a fake that replays without Python: padding, buffers, which step goes where."""

import pytest
import torch

from minivllm import LLM, Parts, SamplingParams
from minivllm.assembly import _graphs
from minivllm.executor.cuda_graph import DecodeGraphs, batch_sizes, context_classes
from minivllm.executor.inputs import StepInputs
from tests.executor.fake_gpu import FakeGpu, MaskedBackend
from tests.test_greedy_tokens import random_prompts

BLOCK_SIZE = 4


def graph_llm(path, num_blocks=60, **settings):
    """An engine whose decode steps run as fake graphs; everything else is as always."""
    settings = {"max_num_seqs": 6, "max_num_batched_tokens": 64, "max_model_len": 64, **settings}
    llm = LLM(
        path, skip_tokenizer_init=True, device="cpu", block_size=BLOCK_SIZE,
        num_gpu_blocks_override=num_blocks, parts=Parts(attention_backend=MaskedBackend), **settings,
    )  # fmt: skip
    executor = llm.engine.executor
    executor.backend.allocate(num_blocks + 1)
    executor.backend.data.fill_(float("nan"))  # whoever reads what was not written fails
    gpu = FakeGpu()
    executor.graphs = _graphs(llm.engine.config, executor, gpu, num_blocks)
    return llm, gpu


def decode_inputs(contexts, tables, tokens=None):
    positions = [context - 1 for context in contexts]
    slots = [
        table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE
        for p, table in zip(positions, tables, strict=True)
    ]
    tokens = tokens or list(range(1, len(contexts) + 1))
    return StepInputs(
        tokens, positions, slots, [1] * len(contexts), contexts, tables, list(range(len(contexts)))
    )


def test_sizes_are_vllms_up_to_the_largest_batch():
    assert batch_sizes(1) == [1]
    assert batch_sizes(3) == [1, 2, 3]
    assert batch_sizes(8) == [1, 2, 4, 8]
    assert batch_sizes(30) == [1, 2, 4, 8, 16, 24, 30]
    assert batch_sizes(4096)[-3:] == [496, 504, 512]


def test_context_classes_end_at_the_longest_request():
    assert context_classes(100) == [100]
    assert context_classes(1024) == [1024]
    assert context_classes(8192) == [1024, 4096, 8192]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(
    "settings", [{}, {"max_num_batched_tokens": 5}, {"num_blocks": 12, "max_model_len": 40}]
)
def test_greedy_tokens_through_graphs_are_transformers(checkpoints, references, family, settings):
    llm, gpu = graph_llm(checkpoints[family], **settings)
    prompts = random_prompts(2, [9, 4, 1, 13, 6])
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (12, 20, 3, 9, 25)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    references[family].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    graphs = llm.engine.executor.graphs.graphs
    assert gpu.num_captured == len(graphs) <= 4 and {size for size, _ in graphs} <= {1, 2, 4, 5, 6}
    pure = [s for s in llm.trace.steps if set(s.num_scheduled_tokens.values()) == {1}]
    assert gpu.num_replayed == len(pure) > 10
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]
    if "num_blocks" in settings:
        assert llm.stats()["num_preemptions"] > 0


def test_sampled_tokens_and_shared_prompts_are_those_of_the_eager_engine(checkpoints):
    llm, _ = graph_llm(checkpoints["llama"])
    prompts = random_prompts(3, [7, 12])
    params = SamplingParams(n=3, temperature=1.0, top_p=0.9, seed=4, max_tokens=10, ignore_eos=True)
    graphs = [[c.token_ids for c in o.outputs] for o in llm.generate(prompts, params, use_tqdm=False)]
    llm.engine.executor.graphs = None
    llm.reset_prefix_cache()
    eager = [[c.token_ids for c in o.outputs] for o in llm.generate(prompts, params, use_tqdm=False)]
    assert graphs == eager


def test_padding_touches_no_block_of_the_pool(checkpoints):
    llm, _ = graph_llm(checkpoints["llama"], num_blocks=10)
    executor = llm.engine.executor
    executor.backend.data.fill_(7)
    before = executor.backend.data.clone()
    tables = [[3, 1], [4], [0, 9]]
    with torch.inference_mode():
        out = executor.graphs.run(decode_inputs([6, 1, 5], tables))
    assert out.shape == (3, 48) and list(executor.graphs.graphs) == [(4, 40)]
    changed = (executor.backend.data != before).any(dim=(0, 1)).any(dim=(-1, -2)).nonzero().tolist()
    assert sorted(changed) == [[1, 1], [4, 0], [9, 0], [10, 0]]  # three real slots, and the spare block's


def test_a_padding_row_is_a_request_of_one_token_in_the_spare_block(checkpoints):
    llm, gpu = graph_llm(checkpoints["llama"], num_blocks=10)
    with torch.inference_mode():
        llm.engine.executor.graphs.run(decode_inputs([6, 1, 5], [[3, 1], [4], [0, 9]], [7, 8, 9]))
    columns, tables = gpu.sent[:64].reshape(4, 16)[:, :4], gpu.sent[64:].reshape(4, 16)
    assert columns.tolist() == [[7, 8, 9, 0], [5, 0, 4, 0], [5, 16, 36, 40], [6, 1, 5, 1]]
    assert [row[:2].tolist() for row in tables] == [[3, 1], [4, 0], [0, 9], [10, 0]]


def test_only_rows_that_sample_are_given_back(checkpoints):
    llm, _ = graph_llm(checkpoints["llama"], num_blocks=10)
    executor = llm.engine.executor
    executor.backend.data.normal_(generator=torch.Generator().manual_seed(0))
    inputs = decode_inputs([6, 1, 5], [[3, 1], [4], [0, 9]])
    inputs.sample_rows = [1, 2]
    with torch.inference_mode():
        replayed, eager = executor._replay(inputs), executor._run(inputs)
    assert replayed.shape == (2, 48) and torch.allclose(replayed, eager, atol=1e-5)
    inputs.sample_rows = []
    with torch.inference_mode():
        assert executor._replay(inputs) is None


def test_a_replay_sees_this_steps_numbers_and_nothing_of_the_last(checkpoints):
    llm, gpu = graph_llm(checkpoints["llama"], num_blocks=12)
    executor = llm.engine.executor
    executor.backend.data.normal_(generator=torch.Generator().manual_seed(0))
    steps = [
        decode_inputs([6, 1, 5], [[3, 1], [4], [0, 9]], [5, 6, 7]),
        decode_inputs([7, 2, 6], [[3, 1], [4], [0, 9]], [8, 9, 10]),  # the same tables
        decode_inputs([8, 12, 3], [[3, 1], [2, 5, 6], [7]], [1, 2, 3]),  # others in the same rows
        decode_inputs([4], [[8]], [3]),
        decode_inputs([5, 13, 4, 9], [[8, 11], [2, 5, 6, 10], [7], [3, 1, 0]], [3, 4, 5, 6]),
    ]
    with torch.inference_mode():
        for inputs in steps:
            cache = executor.backend.data.clone()
            replayed = executor.graphs.run(inputs).clone()
            executor.backend.data.copy_(cache)
            eager = executor._run(inputs)
            assert torch.allclose(replayed, eager, atol=1e-5)
    assert gpu.num_captured == 2 and set(executor.graphs.graphs) == {(4, 48), (1, 48)}


def test_context_class_and_width_of_the_tables_follow_the_longest_request(checkpoints):
    llm, _ = graph_llm(checkpoints["llama"], num_blocks=800, max_model_len=512)
    executor = llm.engine.executor
    graphs = DecodeGraphs(
        executor.model, executor.backend, FakeGpu(),
        max_num_seqs=4, max_model_len=3000, block_size=BLOCK_SIZE, spare_block=800,
    )  # fmt: skip
    executor.backend.data.normal_()
    far = [list(range(750)), [760]]
    with torch.inference_mode():
        for contexts in ([1024, 3], [1025, 4], [3000, 1], [17, 4]):
            inputs = decode_inputs(contexts, far)
            cache = executor.backend.data.clone()
            replayed = graphs.run(inputs).clone()
            executor.backend.data.copy_(cache)
            assert torch.allclose(replayed, executor._run(inputs), atol=1e-5)
    assert set(graphs.graphs) == {(2, 1024), (2, 3000)}


def test_mixed_steps_and_too_wide_ones_are_not_for_graphs(checkpoints):
    llm, _ = graph_llm(checkpoints["llama"], max_num_seqs=2)
    graphs = llm.engine.executor.graphs
    assert graphs.fits(decode_inputs([3, 1], [[0], [1]]))
    assert not graphs.fits(decode_inputs([3, 1, 2], [[0], [1], [2]]))
    mixed = StepInputs([1, 2, 3], [0, 1, 4], [0, 1, 12], [2, 1], [2, 5], [[0], [1, 3]], [1, 2])
    assert not graphs.fits(mixed)


def test_a_decode_step_that_samples_nothing_or_a_part_is_a_graph_too(checkpoints, references):
    llm, gpu = graph_llm(checkpoints["llama"], max_num_batched_tokens=2)
    prompts = random_prompts(5, [6, 3, 8])  # chunks of one token: some rows sample, some do not
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    references["llama"].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    assert gpu.num_replayed > 10
