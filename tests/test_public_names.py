"""Names and defaults shared with vLLM 0.33, so that a script moves there by changing its import.

data/vllm_names.csv has one line a name: vLLM's default as `repr` writes it, `required`, or `removed`. Where
ours is another on purpose, the note begins with "ours VALUE:" and says why; any other difference fails,
and so does a note that is no longer true.
"""

import csv
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import minivllm
from minivllm.config import EngineConfig
from minivllm.outputs import CompletionOutput, RequestOutput
from minivllm.sampling import SamplingParams

TABLE = list(csv.DictReader((Path(__file__).parent / "data" / "vllm_names.csv").open(encoding="utf-8")))
CLASSES = {c.__name__: c for c in (SamplingParams, EngineConfig, RequestOutput, CompletionOutput)}
# vLLM calls our `policy` scheduling_policy, and knows other values.
OURS_ALONE = {
    "EngineConfig": {
        "device", "scheduler", "policy", "preemption_mode", "prefix_cache", "attention_backend",
        "trace_capacity",
    }
}  # fmt: skip


def our_default(field):
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    return repr(field.default if field.default is not MISSING else field.default_factory())


def shared_fields(name):
    return {f.name: f for f in fields(CLASSES[name]) if f.init and f.name not in OURS_ALONE.get(name, ())}


@pytest.mark.parametrize("line", TABLE, ids=lambda line: f"{line['class']}.{line['name']}")
def test_a_shared_name_exists_with_vllms_default_or_a_noted_one(line):
    field = shared_fields(line["class"]).get(line["name"])
    assert field is not None, f"{line['class']} has no {line['name']}"
    noted = re.match(r"ours (\S+): .{20}", line["note"])
    expected = noted.group(1) if noted else line["default"]
    assert our_default(field) == expected
    assert not noted or expected != line["default"], "the note explains a difference that is not there"


@pytest.mark.parametrize("name", CLASSES)
def test_every_name_is_in_the_table_or_known_to_be_ours(name):
    assert set(shared_fields(name)) == {line["name"] for line in TABLE if line["class"] == name}


def test_names_that_are_ours_alone_exist():
    for name, ours in OURS_ALONE.items():
        assert ours <= {f.name for f in fields(CLASSES[name])}


@pytest.mark.parametrize("name", minivllm.__all__)
def test_every_public_name_can_be_imported_from_the_package(name):
    assert getattr(minivllm, name).__name__ == name


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = minivllm.Nothing


def test_an_unknown_setting_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown setting 'max_seqs'.*max_num_seqs"):
        EngineConfig.from_kwargs(max_seqs=3)
