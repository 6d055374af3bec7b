import json
import shutil
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from minivllm.model.tokenizer import Tokenizer

from .tokenizers_for_tests import byte_level_folder, sentencepiece_folder

TEXTS = [
    "",
    "Hello, world!",
    "  two  spaces\n\n\tand 12345 digits",
    "<|im_start|>user\nhi<|im_end|>\n",
    "naïve café — 日本語 🎉 👩‍👩‍👧 e\u0301",
]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> & 日本"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
]


@pytest.fixture(scope="module", params=[byte_level_folder, sentencepiece_folder])
def folder(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("tokenizer"))


def test_ids_and_text_are_those_of_transformers(folder):
    ours, theirs = Tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text).input_ids
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == theirs(text, add_special_tokens=False).input_ids
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)
    assert ours.vocab_size == len(theirs)
    assert ours.eos_token_id == theirs.eos_token_id


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", [CHAT, CHAT[1:2], CHAT[:2]])
def test_chat_prompts_are_those_of_transformers(folder, messages, add_generation_prompt):
    ours, theirs = Tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for tokenize in (False, True):
        expected = theirs.apply_chat_template(
            messages, add_generation_prompt=add_generation_prompt, tokenize=tokenize, return_dict=False
        )
        assert ours.apply_chat_template(messages, add_generation_prompt, tokenize=tokenize) == expected


def test_beginning_of_sequence_comes_once_in_a_chat(tmp_path):
    tokenizer = Tokenizer(sentencepiece_folder(tmp_path))
    assert tokenizer.encode("ab")[0] == tokenizer.bos_token_id
    ids = tokenizer.apply_chat_template(CHAT, tokenize=True)
    assert ids.count(tokenizer.bos_token_id) == 1


def test_template_in_a_file_of_its_own_comes_first(tmp_path):
    byte_level_folder(tmp_path)
    template = "{{ messages[0].content | tojson }}|{{ eos_token }}|{{ mood }}"
    (tmp_path / "chat_template.jinja").write_text(template)
    text = Tokenizer(tmp_path).apply_chat_template(CHAT[1:2], mood="calm")
    assert text == '"Hi <b> & 日本"|<|im_end|>|calm'


def test_of_several_named_templates_the_default_is_used(tmp_path):
    byte_level_folder(tmp_path)
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    _edit_config(tmp_path, chat_template=named)
    assert Tokenizer(tmp_path).apply_chat_template(CHAT) == "d"


def test_templates_know_the_date_and_the_loop_controls(tmp_path):
    byte_level_folder(tmp_path)
    loop = "{% for message in messages %}{% break %}{% endfor %}"
    template = "{{ strftime_now('%Y') | length }}" + loop + "{{ tools is none }}"
    _edit_config(tmp_path, chat_template=template)
    assert Tokenizer(tmp_path).apply_chat_template(CHAT) == "4True"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, ["chat template", "instruction-tuned"]),
        ("{{ raise_exception('roles must alternate') }}", ["roles must alternate"]),
        ("{% for %}", ["Jinja"]),
        ("{{ messages.append(1) }}", ["refuses"]),
    ],
)
def test_chat_without_a_usable_template_is_refused(tmp_path, template, words):
    byte_level_folder(tmp_path)
    _edit_config(tmp_path, chat_template=template)
    with pytest.raises(ValueError) as caught:
        Tokenizer(tmp_path).apply_chat_template(CHAT)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "messages", [[], "hello", [{"role": "user"}], ["hello"], {"role": "user", "content": ""}]
)
def test_messages_that_are_none_are_refused(tmp_path, messages):
    with pytest.raises(ValueError, match="message"):
        Tokenizer(byte_level_folder(tmp_path)).apply_chat_template(messages)


def test_token_text_shows_each_token_by_itself(tmp_path):
    tokenizer = Tokenizer(byte_level_folder(tmp_path))
    ids = tokenizer.encode(" é<|im_end|>")
    assert tokenizer.token_text(ids[-1]) == "<|im_end|>"
    assert tokenizer.token_text(tokenizer.encode(" ")[0]) == " "
    assert tokenizer.token_text(10**6) == ""
    assert all(tokenizer.token_text(token_id) for token_id in range(tokenizer.vocab_size))


def test_settings_for_truncation_and_padding_in_the_file_are_not_used(tmp_path):
    tokenizer = Tokenizer(byte_level_folder(tmp_path))
    tokenizer.fast.enable_truncation(2)
    tokenizer.fast.enable_padding(length=50)
    tokenizer.fast.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(tmp_path).decode(Tokenizer(tmp_path).encode("longer than two")) == "longer than two"


def test_missing_tokenizer_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match="skip_tokenizer_init=True") as caught:
        Tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_file_is_named(tmp_path, name):
    byte_level_folder(tmp_path)
    (tmp_path / name).write_text('{"half')
    with pytest.raises(ValueError, match=name):
        Tokenizer(tmp_path)


def test_folder_without_tokenizer_config_still_encodes(tmp_path):
    source = byte_level_folder(tmp_path / "a")
    (tmp_path / "b").mkdir()
    shutil.copy(source / "tokenizer.json", tmp_path / "b")
    tokenizer = Tokenizer(tmp_path / "b")
    assert tokenizer.encode("hi") == Tokenizer(source).encode("hi")
    assert tokenizer.eos_token_id is None


def test_tokenizer_imports_neither_torch_nor_transformers():
    code = (
        "import sys, minivllm.model.tokenizer, minivllm.model.detokenizer;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def _edit_config(folder, **values):
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))
