"""Text as it grows: stop strings wherever they fall, at a cost that does not grow with the answer."""

import random

import pytest

from minivllm.outputs import OutputBuilder
from minivllm.request import Request
from minivllm.sampling import SamplingParams


class Letters:
    """A tokenizer whose token i is the i-th piece of a fixed list."""

    is_byte_level = True
    special_ids = frozenset()

    def __init__(self, pieces):
        self.pieces = pieces
        self.fast = self

    def id_to_token(self, token_id):
        return self.pieces[token_id]


def feed(pieces, stop, min_tokens=0):
    params = SamplingParams(max_tokens=1000, stop=stop, min_tokens=min_tokens)
    request = Request("r", [0], params)
    builder = OutputBuilder(request, Letters(pieces))
    shown = []
    for token in range(len(pieces)):
        request.append(token)
        hit = builder.add(token)
        if hit is not None:
            request.finish_reason, request.stop_reason = "stop", hit
        shown.append(builder.completion().text)
        if hit is not None:
            return shown, hit
    request.finish_reason = "length"
    shown.append(builder.completion().text)
    return shown, None


@pytest.mark.parametrize("seed", range(50))
def test_text_ends_before_the_first_stop_string_wherever_tokens_cut_it(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice("ab") for _ in range(60))
    pieces, rest = [], text
    while rest:
        n = rng.randint(1, 5)
        pieces.append(rest[:n])
        rest = rest[n:]
    stops = ["".join(rng.choice("abc") for _ in range(rng.randint(1, 7))) for _ in range(3)]
    shown, hit = feed(pieces, stops)
    # The first token that completes a stop string ends the text; of several, the earliest counts.
    so_far, expected = "", text
    for piece in pieces:
        so_far += piece
        found = [so_far.find(s) for s in stops if s in so_far]
        if found:
            expected = so_far[: min(found)]
            break
    assert shown[-1] == expected
    assert (hit is not None) == (expected != text or any(s in text for s in stops))
    assert all(b.startswith(a) for a, b in zip(shown, shown[1:], strict=False)), "shown text was taken back"


def test_stop_string_before_min_tokens_does_not_end_the_request():
    assert feed(["a", "STOP", "b", "c", "STOP", "d"], "STOP", min_tokens=3)[0][-1] == "aSTOPbc"


def test_a_long_answer_costs_no_more_per_token_than_a_short_one():
    """Counted, not timed: characters that the stop search looks at."""
    looked = []

    class Counting(OutputBuilder):
        def _tail(self, num_chars):
            tail = super()._tail(num_chars)
            looked.append(len(tail))
            return tail

    request = Request("r", [0], SamplingParams(max_tokens=5000, stop="needle"))
    builder = Counting(request, Letters(["word "] * 4000))
    for token in range(4000):
        request.append(token)
        builder.add(token)
    assert max(looked) <= 15
