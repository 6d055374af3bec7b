import random
import time

import pytest

from minivllm.model.detokenizer import Detokenizer
from minivllm.model.tokenizer import Tokenizer

from .tokenizers_for_tests import byte_level_folder, sentencepiece_folder

TEXTS = [
    "plain words, and more of the same",
    " leading and  double   spaces \n\n\ttabs ",
    "日本語の文 🎉🎊 👩‍👩‍👧‍👦 🇫🇷",
    "combining e\u0301 a\u030a\u0323, Zalgo h\u0321\u0322\u0327e",
    "العربية עברית हिन्दी ไทย",
    "\u0000\u007f\u0080\ud7ff\ue000\ufffd\U0010ffff",
    "<|im_start|>user says plain→added<|im_end|> and goes on",
]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return Tokenizer(byte_level_folder(tmp_path_factory.mktemp("byte_level")))


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    return Tokenizer(sentencepiece_folder(tmp_path_factory.mktemp("sentencepiece")))


@pytest.fixture(params=["byte_level", "sentencepiece"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def _pieces(tokenizer, ids, skip_special_tokens=True):
    detokenizer = Detokenizer(tokenizer, skip_special_tokens)
    return [detokenizer.add(token_id) for token_id in ids]


def _assert_streams(tokenizer, ids, skip):
    text, whole = "".join(_pieces(tokenizer, ids, skip)), tokenizer.decode(ids, skip)
    assert whole.startswith(text)
    assert set(whole[len(text) :]) <= {"\ufffd"} and len(whole) - len(text) <= 3


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_a_text_make_what_decoding_it_whole_makes(tokenizer, text, skip):
    ids = tokenizer.encode(text)
    assert "".join(_pieces(tokenizer, ids, skip)) == tokenizer.decode(ids, skip)


def test_pieces_of_random_bytes_make_what_decoding_them_whole_makes(byte_level):
    choose = random.Random(0)
    single_bytes = [i for i in range(byte_level.vocab_size) if len(byte_level.fast.id_to_token(i)) == 1]
    for trial in range(1000):
        among = single_bytes if trial % 2 else range(byte_level.vocab_size)
        _assert_streams(byte_level, choose.choices(among, k=30), skip=trial % 4 < 2)


def test_pieces_of_random_sentencepiece_tokens_make_what_decoding_them_whole_makes(sentencepiece):
    choose = random.Random(0)
    no_bytes = [
        i for i in range(sentencepiece.vocab_size) if not sentencepiece.fast.id_to_token(i).startswith("<0x")
    ]
    for trial in range(300):
        _assert_streams(sentencepiece, choose.choices(no_bytes, k=30), skip=trial % 2 == 0)


def test_a_run_of_broken_bytes_neither_fails_nor_is_held_back(sentencepiece):
    broken = sentencepiece.fast.token_to_id("<0xE2>")
    ab = sentencepiece.encode("ab", add_special_tokens=False)
    pieces = _pieces(sentencepiece, [*ab, *[broken] * 40, *ab])
    assert pieces[len(ab) + 1 : len(ab) + 40] == ["\ufffd"] * 39
    assert "".join(pieces).startswith("ab\ufffd") and "".join(pieces).endswith("\ufffd ab")


def test_half_a_character_is_held_back_and_dropped_at_the_end(tokenizer):
    ids = tokenizer.encode("a🎉", add_special_tokens=False)
    assert len(ids) >= 3
    assert "".join(_pieces(tokenizer, ids[:-1])) == "a"
    pieces = _pieces(tokenizer, ids)
    assert pieces[-1] == "🎉" and "".join(pieces) == "a🎉"


def test_ids_without_a_token_are_silent(tokenizer):
    assert _pieces(tokenizer, [10**6]) == [""]


def test_time_a_token_does_not_grow_with_the_text(tokenizer):
    ids = tokenizer.encode("the ab 日 🎉 " * 2000)
    detokenizer = Detokenizer(tokenizer)
    times = []
    for start in (0, len(ids) // 2):
        begin = time.process_time()
        for token_id in ids[start : start + len(ids) // 2]:
            detokenizer.add(token_id)
        times.append(time.process_time() - begin)
    assert times[1] < 3 * times[0] + 0.05
