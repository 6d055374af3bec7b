"""What a user gets back, with vLLM's names, and how it is put together token by token.

`OutputBuilder` turns one request's tokens into text as they come: the detokenizer gives only whole
characters, stop strings are looked for in the newest characters only (so a long answer costs no
more per token than a short one), and what might be the beginning of a stop string is not shown yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .model.detokenizer import Detokenizer
from .request import Request


@dataclass
class Logprob:
    """Natural logarithm of the model's probability; `rank` 1 is the likeliest token."""

    logprob: float
    rank: int
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class RequestMetrics:
    """Seconds of `time.perf_counter()`. `token_times` has one time per output token of the first
    completion, `finished_time` is that of the last completion."""

    arrival_time: float
    first_scheduled_time: float | None = None
    token_times: list[float] = field(default_factory=list)
    finished_time: float | None = None

    @property
    def time_to_first_token(self) -> float | None:
        return self.token_times[0] - self.arrival_time if self.token_times else None

    @property
    def inter_token_latencies(self) -> list[float]:
        return [b - a for a, b in zip(self.token_times, self.token_times[1:], strict=False)]

    def scheduled(self, now: float) -> None:
        if self.first_scheduled_time is None:
            self.first_scheduled_time = now

    def token(self, now: float, index: int, is_last: bool) -> None:
        if index == 0:
            self.token_times.append(now)
        if is_last:
            self.finished_time = now


@dataclass
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None


class OutputGroup:
    """All completions of one prompt (n of them), and what is said of them together. `tokenizer` may be
    None: then texts are empty, and stop strings cannot match."""

    def __init__(self, request: Request, prompt: str | None, tokenizer: Any) -> None:
        self.request = request
        self.prompt = prompt
        self.metrics = RequestMetrics(request.arrival_time)
        self.builders = [OutputBuilder(request, tokenizer)]
        self._tokenizer = tokenizer

    def builder_of(self, request: Request) -> OutputBuilder:
        """The builder of a completion; children join when their first token comes."""
        if request.index == len(self.builders):
            self.builders.append(OutputBuilder(request, self._tokenizer))
        return self.builders[request.index]

    def output(self) -> RequestOutput:
        request = self.request
        return RequestOutput(
            request_id=request.request_id,
            prompt=self.prompt,
            prompt_token_ids=request.token_ids[: request.num_prompt_tokens],
            outputs=[builder.completion() for builder in self.builders],
            finished=all(builder.request.finish_reason is not None for builder in self.builders),
            num_cached_tokens=request.num_cached_tokens,
            metrics=self.metrics,
        )


class OutputBuilder:
    """Text and logprobs of one completion."""

    def __init__(self, request: Request, tokenizer: Any) -> None:
        self.request = request
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, request.params.skip_special_tokens) if tokenizer else None
        self._pieces: list[str] = []
        self._num_chars = 0
        self._stops = request.params.stop_strings
        self._longest_stop = max(map(len, self._stops), default=0)
        self._text: str | None = None  # set once a stop string has cut it
        self._logprobs: list[dict[int, Logprob]] = []
        self._cumulative_logprob = 0.0

    def add(self, token_id: int, sampled: Any = None) -> str | None:
        """Take one token; return the stop string that it completes, if any. A token that ends the
        request by its id (end of sequence, stop ids) adds no text."""
        if sampled is not None and sampled.logprob is not None:
            self._add_logprobs(token_id, sampled)
        if self._detokenizer is None or self.request.finish_reason == "stop":
            return None
        piece = self._detokenizer.add(token_id)
        if not piece:
            return None
        self._pieces.append(piece)
        self._num_chars += len(piece)
        if not self._stops or self.request.num_output_tokens < self.request.params.min_tokens:
            return None
        return self._find_stop(len(piece))

    def completion(self) -> CompletionOutput:
        request = self.request
        return CompletionOutput(
            index=request.index,
            text=self._shown_text(),
            token_ids=request.output_token_ids,
            cumulative_logprob=self._cumulative_logprob if self._logprobs else None,
            logprobs=self._logprobs if request.params.logprobs is not None else None,
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
        )

    def _find_stop(self, num_new_chars: int) -> str | None:
        tail = self._tail(num_new_chars + self._longest_stop - 1)
        hits = [(tail.find(stop), stop) for stop in self._stops if stop in tail]
        if not hits:
            return None
        position, stop = min(hits)
        self._text = "".join(self._pieces)[: self._num_chars - len(tail) + position]
        return stop

    def _tail(self, num_chars: int) -> str:
        """The last characters of the text, gathered from as few pieces as hold them."""
        pieces: list[str] = []
        missing = num_chars
        for piece in reversed(self._pieces):
            pieces.append(piece)
            missing -= len(piece)
            if missing <= 0:
                break
        return "".join(reversed(pieces))[-num_chars:]

    def _shown_text(self) -> str:
        if self._text is not None:
            return self._text
        text = "".join(self._pieces)
        if self.request.finish_reason is not None or self._longest_stop < 2:
            return text
        return text[: max(0, len(text) - self._longest_stop + 1)]

    def _add_logprobs(self, token_id: int, sampled: Any) -> None:
        self._cumulative_logprob += sampled.logprob
        row = {}
        for token, (logprob, rank) in sampled.top_logprobs.items():
            decoded = self._tokenizer.token_text(token) if self._tokenizer else None
            row[token] = Logprob(logprob, rank, decoded)
        self._logprobs.append(row)
