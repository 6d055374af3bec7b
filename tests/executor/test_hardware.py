"""Machines: the ridge, what is attainable, and the measurement of this one."""

import pytest

from minivllm.executor.hardware import A100, H100, HARDWARE, Hardware, find, this_machine


def test_the_ridge_is_where_slope_and_flat_roof_meet():
    machine = Hardware("a machine", flops=1000.0, bandwidth=10.0, memory=1)
    assert machine.ridge == 100
    assert machine.attainable(50) == 500
    assert machine.attainable(100) == machine.attainable(200) == 1000


def test_gpus_of_the_data_sheets_are_plausible():
    for name, gpu in HARDWARE.items():
        assert find(name) is gpu and gpu.name == name
        assert 60e12 <= gpu.flops <= 2e15 and 200e9 <= gpu.bandwidth <= 1e13
        assert 100 < gpu.ridge < 450
    assert H100.memory == A100.memory == 80 * 10**9


def test_an_unknown_machine_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no hardware is called 'H1000'; known are H100 SXM"):
        find("H1000")


def test_this_machine_is_measured_plausibly():
    here = this_machine(seconds=0.05)
    assert 1e8 < here.flops < 1e14 and 1e8 < here.bandwidth < 1e13
    assert here.memory >= 0
