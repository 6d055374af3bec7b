"""What an engine refuses to ask of a scheduler, by the level that it has shown."""

from types import SimpleNamespace

import pytest

from minivllm.config import EngineConfig
from minivllm.sampling import SamplingParams
from minivllm.scheduler.levels import LEVELS, AboveLevel, refuse_memory, refuse_request, refuse_settings

PLAIN = {"enable_chunked_prefill": False}
NEEDS = {  # setting → (value, the lowest level that takes it)
    "enable_chunked_prefill": (True, "chunked"),
    "scheduler": ("static", "complete"),
    "policy": ("priority", "complete"),
    "preemption_mode": ("swap", "complete"),
}


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_takes_whole_prompts_in_order_of_arrival(level):
    refuse_settings(level, EngineConfig(**PLAIN))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("setting", NEEDS)
def test_a_setting_is_taken_from_its_level_on(level, setting):
    value, lowest = NEEDS[setting]
    config = EngineConfig(**{**PLAIN, setting: value})
    if LEVELS.index(level) >= LEVELS.index(lowest):
        refuse_settings(level, config)
        return
    with pytest.raises(AboveLevel, match=f"{setting} is {value!r}.*{level!r}.*{lowest!r}; set it to"):
        refuse_settings(level, config)


def test_an_unknown_level_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="scheduler_level is 'best'; it must be one of basic, chunked"):
        refuse_settings("best", EngineConfig())


@pytest.mark.parametrize("level", LEVELS)
def test_memory_may_be_short_only_for_whoever_takes_it_back(level):
    config = SimpleNamespace(max_num_seqs=4, max_model_len=50, block_size=16)
    refuse_memory(level, config, 16)
    if level in ("preempting", "complete"):
        refuse_memory(level, config, 15)
        return
    with pytest.raises(
        AboveLevel, match="the pool has 15 KV blocks.*can come to need 16.*lower max_num_seqs"
    ):
        refuse_memory(level, config, 15)


@pytest.mark.parametrize("level", LEVELS)
def test_forks_are_minivllms_own_affair(level):
    refuse_request(level, SamplingParams(n=1))
    if level == "complete":
        refuse_request(level, SamplingParams(n=2))
        return
    with pytest.raises(AboveLevel, match="n is 2.*send the prompt n times"):
        refuse_request(level, SamplingParams(n=2))
