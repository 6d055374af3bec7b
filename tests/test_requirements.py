"""The packages we name: pins agree with pyproject.toml's ranges, and this environment with the pins."""

import importlib.metadata
import random
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINS = [
    Requirement(line)
    for name in ("requirements.txt", "requirements-ci.txt")
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
RECONNECTIONS = 1000


def ranges():
    """What pyproject.toml asks for, the extras included."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 brings tomllib, which reads pyproject.toml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(text) for texts in (project["dependencies"], *extras) for text in texts]


@pytest.mark.parametrize("pin", PINS, ids=str)
def test_a_pin_is_an_exact_version_that_the_ranges_allow(pin):
    (exact,) = pin.specifier
    assert exact.operator == "=="
    for wanted in ranges():
        if wanted.name == pin.name:
            assert exact.version in wanted.specifier, f"{pin} is outside {wanted}"


def test_every_range_has_a_pin_except_what_others_bring_along():
    pinned, indirect = {pin.name for pin in PINS}, {"minivllm", "filelock"}
    assert {wanted.name for wanted in ranges()} - pinned == indirect


@pytest.mark.skipif(sys.prefix != str(ROOT / ".venv"), reason="not the environment that `make` set up")
@pytest.mark.parametrize("pin", PINS, ids=str)
def test_what_make_installed_is_what_is_pinned(pin):
    if pin.marker is not None and not pin.marker.evaluate():
        pytest.skip("not for this Python or system")
    try:
        installed = importlib.metadata.version(pin.name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed: CI adds it")
    assert f"=={installed}" == str(pin.specifier)


def test_a_kernel_answers_the_first_cell_of_every_fresh_connection():
    """What a page does when it is opened or loaded again: Jupyter's server asks the kernel how it is over
    two connections that it closes once one of them has an answer, then the page sends a cell. ipykernel 7.2
    lost about four cells in a thousand, and the cell showed [*] for ever (ipython/ipykernel#1554)."""
    client_api = pytest.importorskip("jupyter_client")
    session_api = pytest.importorskip("jupyter_client.session")
    manager = client_api.KernelManager()
    manager.start_kernel()
    rng = random.Random(0)
    try:
        first = manager.client()
        first.start_channels()
        first.wait_for_ready(timeout=120)
        first.stop_channels()
        for number in range(RECONNECTIONS):
            session = session_api.Session(
                key=manager.session.key, signature_scheme=manager.session.signature_scheme
            )
            page = manager.connect_shell(identity=session.bsession)
            probes = manager.connect_shell(), manager.connect_control()
            for probe in probes:
                session.send(probe, "kernel_info_request")
            assert probes[1].poll(30_000)
            for probe in probes:
                probe.close()
            time.sleep(rng.random() * 0.004)
            session.send(page, "kernel_info_request")
            sent = session.send(page, "execute_request", {"code": "1", "silent": False})
            while page.poll(30_000):
                reply = session.deserialize(session.feed_identities(page.recv_multipart())[1])
                if reply["parent_header"]["msg_id"] == sent["header"]["msg_id"]:
                    break
            else:
                raise AssertionError(f"connection {number}: no answer to its first cell within 30 s")
            page.close()
    finally:
        manager.shutdown_kernel(now=True)
