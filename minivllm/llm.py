"""`LLM`: the offline front of the engine. A batch of prompts in, their answers out, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tqdm import tqdm

from .config import DEFAULT_MODEL, EngineConfig
from .engine import Engine, Prompt
from .interrupt import deferred_interrupt
from .outputs import RequestOutput
from .parts import Parts
from .sampling import SamplingParams
from .trace import Trace


class LLM:
    """A model, loaded and ready. `model` is the default's name, a folder in Hugging Face format or
    a Hub name; the other settings are those of `EngineConfig`, and `parts` replaces parts of the
    engine by the reader's own. Raises `ValueError` for settings that do not fit."""

    def __init__(self, model: str = DEFAULT_MODEL, *, parts: Parts | None = None, **settings: Any) -> None:
        self.engine = Engine(EngineConfig.from_kwargs(model=str(model), **settings), parts)

    @property
    def trace(self) -> Trace:
        return self.engine.trace

    @property
    def tokenizer(self):
        return self.engine.tokenizer

    def get_tokenizer(self):
        return self.engine.tokenizer

    def stats(self) -> dict[str, int]:
        return self.engine.stats()

    def reset_prefix_cache(self) -> None:
        self.engine.reset_prefix_cache()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answer one prompt or many; the outputs are in the order of the prompts.

        A prompt is a text, a list of token ids, {"prompt": …} or {"prompt_token_ids": …};
        a "cache_salt" beside them keeps its cached prefixes to itself. `sampling_params` is one for all
        or one each; `priority` (smaller first) is one each, for policy="priority". If a prompt is
        refused (`ValueError`), or the run is interrupted, none of this call's requests is left in the
        engine.
        """
        prompts = _as_list(prompts)
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            all_params = [sampling_params or SamplingParams()] * len(prompts)
        else:
            all_params = list(sampling_params)
        if len(all_params) != len(prompts):
            raise ValueError(
                f"{len(prompts)} prompts but {len(all_params)} sampling_params; give one or one each"
            )
        if priority is not None and len(priority) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts but {len(priority)} priorities; give one each")
        ids: list[str] = []
        done: dict[str, RequestOutput] = {}
        try:
            with deferred_interrupt() as stop_if_asked:
                for i, (prompt, params) in enumerate(zip(prompts, all_params, strict=True)):
                    level = priority[i] if priority is not None else 0
                    ids.append(self.engine.add_request(prompt, params, priority=level))
                    stop_if_asked()
                self._run(ids, done, stop_if_asked, use_tqdm)
        finally:
            for request_id in ids:
                if request_id not in done:
                    self.engine.abort(request_id)
        return [done[request_id] for request_id in ids]

    def _run(
        self,
        ids: list[str],
        done: dict[str, RequestOutput],
        stop_if_asked: Callable[[], None],
        use_tqdm: bool,
    ) -> None:
        """Step until all of `ids` have ended; their outputs go into `done`."""
        waiting_for, num_tokens = set(ids), 0
        with tqdm(total=len(ids), desc="requests", unit="req", disable=not use_tqdm, miniters=0) as bar:
            while waiting_for:
                for output in self.engine.step():
                    num_tokens += 1
                    if output.finished and output.request_id in waiting_for:
                        waiting_for.discard(output.request_id)
                        done[output.request_id] = output
                        bar.update()
                stop_if_asked()
                rate = num_tokens / (bar.format_dict["elapsed"] or 1)
                bar.set_postfix_str(f"{num_tokens} tokens, {rate:.1f} tokens/s", refresh=False)
                bar.update(0)  # redraws, at most ten times a second

    def chat(
        self,
        messages: list[dict[str, str]] | list[list[dict[str, str]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation, or a list of them. A message is {"role": …, "content": …}."""
        if self.tokenizer is None:
            raise ValueError("chat needs a tokenizer; load the model without skip_tokenizer_init")
        if not messages:
            raise ValueError("messages is empty; give at least one {'role': 'user', 'content': …}")
        conversations = [messages] if isinstance(messages[0], dict) else messages
        prompts = [self._chat_prompt(conversation) for conversation in conversations]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def _chat_prompt(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return {"prompt": text, "prompt_token_ids": self.tokenizer.encode(text, add_special_tokens=False)}


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | dict):
        return [prompts]
    prompts = list(prompts)
    if prompts and isinstance(prompts[0], int) and not isinstance(prompts[0], bool):
        return [prompts]
    return prompts
