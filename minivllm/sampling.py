"""How a request wants its tokens chosen, and when it wants to stop. No tensors here.

Names, meanings and defaults are vLLM's `SamplingParams`. Values are checked when the object is
made, so that a bad one is refused before it can reach the engine.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


@dataclass
class SamplingParams:
    """Sampling and stopping of one request.

    `temperature=0` is greedy. `top_k` of 0 or -1 keeps every token. `seed` makes the tokens a
    function of the prompt alone, whatever else is in the batch; -1 is no seed. `stop` strings end
    the text before their first occurrence; `stop_token_ids` end it after the token. `min_tokens`
    forbids end of sequence and stop ids until that many tokens are out. `logprobs=k` returns the k likeliest
    tokens of each step besides the chosen one. Raises `ValueError` naming value and limit.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    skip_special_tokens: bool = True
    stop_strings: tuple[str, ...] = field(init=False, repr=False, default=())

    MAX_LOGPROBS = 20

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)
        _number("temperature", self.temperature, 0.0)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _whole("top_k", self.top_k, -1)
        _number("min_p", self.min_p, 0.0, 1.0)
        if self.seed == -1:
            self.seed = None
        if self.seed is not None:
            _whole("seed", self.seed, None)
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1)
        _whole("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens is {self.min_tokens}, max_tokens is {self.max_tokens}; "
                "lower min_tokens or raise max_tokens"
            )
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, self.MAX_LOGPROBS)
        _number("repetition_penalty", self.repetition_penalty, 0.0, open_low=True)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        stop = [self.stop] if isinstance(self.stop, str) else _sequence("stop", self.stop, "strings")
        for text in stop:
            if not isinstance(text, str) or not text:
                raise ValueError(f"stop holds {text!r}; every stop string must have a character")
        self.stop_strings = tuple(stop)
        for token in _sequence("stop_token_ids", self.stop_token_ids, "token ids"):
            _whole("stop_token_ids", token, 0)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


def _whole(name: str, value, low: int | None, high: int | None = None) -> None:
    wrong = isinstance(value, bool) or not isinstance(value, int)
    if wrong or (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} is {value!r}; it must be a whole number{_range(low, high)}")


def _number(name: str, value, low: float, high: float | None = None, open_low: bool = False) -> None:
    # Without a limit of its own a value must still be finite; NaN fails every comparison.
    top = sys.float_info.max if high is None else high
    wrong = isinstance(value, bool) or not isinstance(value, int | float)
    if wrong or not (low < value if open_low else low <= value) or not value <= top:
        above = "above" if open_low else "at least"
        raise ValueError(
            f"{name} is {value!r}; it must be a {'finite ' if high is None else ''}number "
            f"{above} {low:g}{'' if high is None else f' and at most {high:g}'}"
        )


def _sequence(name: str, value, of: str) -> list:
    if value is None:
        return []
    if not isinstance(value, list | tuple | set | frozenset):
        raise ValueError(f"{name} is {value!r}; it must be a list of {of}")
    return list(value)


def _range(low: int | None, high: int | None) -> str:
    if low is None:
        return ""
    return f" of at least {low}" if high is None else f" from {low} to {high}"
