"""Is a list of tokens what transformers, in fp32, would have generated greedily?

Greedy decoding takes the argmax of the logits of (prompt + tokens so far). As long as our tokens agree
with it, tokens so far are the same list, so one forward pass over prompt + our tokens gives the very
logits of every step, up to and including the first difference: what the pass says beyond that is
not looked at. That costs one pass instead of one a token, and is exact but for the last bits of fp32.
Those are what the rule for ties is for: at the first difference transformers has scored our prefix, and
if its two best tokens are closer than `TIE_GAP` and ours is one of them, nobody is wrong; the comparison
of this sequence ends there. Anything else is an `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

TIE_GAP = 1e-4
MAX_TIE_SHARE = 0.001


@dataclass(frozen=True)
class Comparison:
    """Tokens that were compared (those behind a tie are not), and ties among them."""

    num_tokens: int
    num_ties: int

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(self.num_tokens + other.num_tokens, self.num_ties + other.num_ties)


class Reference:
    """transformers' own model in fp32, on the CPU. Built from a checkpoint folder or a loaded model."""

    # Positions whose logits are held at once: 13 MB with a vocabulary of 49,152.
    POSITIONS_AT_ONCE = 64

    def __init__(self, path_or_model) -> None:
        if isinstance(path_or_model, str | Path):
            from transformers import AutoModelForCausalLM

            path_or_model = AutoModelForCausalLM.from_pretrained(path_or_model, dtype=torch.float32)
        self.model = path_or_model.float().eval()
        self.vocab_size = self.model.config.vocab_size

    @torch.inference_mode()
    def check_greedy(
        self,
        prompt_token_ids: Sequence[int],
        our_token_ids: Sequence[int],
        eos_ids: Collection[int] = (),
    ) -> Comparison:
        """Compare one sequence. With `eos_ids`, nothing may follow the first of them."""
        prompt, ours = list(prompt_token_ids), list(our_token_ids)
        assert prompt and ours, f"nothing to compare: {len(prompt)} prompt and {len(ours)} output tokens"
        wrong = [token for token in ours if not 0 <= token < self.vocab_size]
        assert not wrong, f"token {wrong[0]} is not in the vocabulary of {self.vocab_size}"
        ends = [i for i, token in enumerate(ours[:-1]) if token in eos_ids]
        assert not ends, f"output goes on after the end-of-sequence token at position {ends[0]}"

        ids = torch.tensor([prompt + ours[:-1]])
        hidden = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, len(prompt) - 1 :]
        for start in range(0, len(ours), self.POSITIONS_AT_ONCE):
            logits = self.model.lm_head(hidden[start : start + self.POSITIONS_AT_ONCE])
            expected = logits.argmax(-1).tolist()
            for i, token in enumerate(expected):
                if token != ours[start + i]:
                    _require_tie(logits[i], ours[start + i], start + i)
                    return Comparison(start + i + 1, 1)
        return Comparison(len(ours), 0)

    def check_all(
        self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], eos_ids: Collection[int] = ()
    ) -> Comparison:
        """Compare (prompt, ours) pairs, and bound the ties: at most 0.1 % of the tokens, or one.

        One is allowed in a total below 1,000 tokens too, where 0.1 % would allow none and a sound engine
        could fail by bad luck. An unsound one cannot hide behind it: two best logits within 1e-4 come
        up about once in 10,000 tokens, and a tie still has to be between our token and the best one.
        """
        total = sum((self.check_greedy(prompt, ours, eos_ids) for prompt, ours in pairs), Comparison(0, 0))
        assert total.num_tokens, "nothing to compare: no pairs"
        allowed = max(1, int(MAX_TIE_SHARE * total.num_tokens))
        assert total.num_ties <= allowed, (
            f"{total.num_ties} ties in {total.num_tokens} tokens, {allowed} allowed"
        )
        return total

    def generate(
        self, prompt_token_ids: Sequence[int], num_tokens: int, eos_ids: Collection[int] = ()
    ) -> list[int]:
        """transformers' own greedy continuation, token by token with its cache."""
        tokens = self.generate_batch([prompt_token_ids], num_tokens, eos_ids)[0]
        end = next((i for i, token in enumerate(tokens) if token in eos_ids), len(tokens))
        return tokens[: end + 1]

    @torch.inference_mode()
    def generate_batch(
        self, prompts: Sequence[Sequence[int]], num_tokens: int, eos_ids: Collection[int] = ()
    ) -> list[list[int]]:
        """The same for prompts of one length; what follows an end of sequence is padding."""
        ids = torch.tensor([list(prompt) for prompt in prompts])
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False,
            eos_token_id=list(eos_ids) or None, pad_token_id=0,
        )  # fmt: skip
        return output[:, ids.shape[1] :].tolist()


def _require_tie(logits: torch.Tensor, ours: int, position: int) -> None:
    values, ids = logits.topk(2)
    gap = (values[0] - values[1]).item()
    if gap < TIE_GAP and ours in ids.tolist():
        return
    behind = (values[0] - logits[ours]).item()
    raise AssertionError(
        f"output token {position} is {ours}, transformers has {ids[0].item()}, whose logit is {behind:.6f} "
        f"higher (its two best are {gap:.6f} apart; below {TIE_GAP} would be a tie)"
    )
