"""The roofline picture: what is drawn for machines and points, and the same as text."""

import io

from minivllm.executor.hardware import A100, H100, Hardware
from minivllm.viz import style
from minivllm.viz.roofline import Point, Roofline

SMALL = Hardware("small", flops=1e12, bandwidth=1e11, memory=1)


def axes_of(picture):
    return picture.figure().axes[0]


def legend_of(picture):
    return [text.get_text() for text in axes_of(picture).get_legend().get_texts()]


def test_each_roof_bends_at_its_ridge():
    roofs = axes_of(Roofline([H100, A100])).get_lines()
    for roof, machine in zip(roofs, (H100, A100), strict=True):
        x, y = roof.get_data()
        assert x[1] == machine.ridge and list(y[1:]) == [machine.flops] * 2
        assert y[0] == machine.bandwidth * x[0]


def test_roofs_differ_by_line_style_as_well_as_by_colour():
    roofs = axes_of(Roofline([H100, A100, SMALL])).get_lines()
    assert len({roof.get_linestyle() for roof in roofs}) == len({roof.get_color() for roof in roofs}) == 3
    assert all(roof.get_color() in style.PALETTE for roof in roofs)


def test_both_axes_are_logarithmic_with_units():
    axes = axes_of(Roofline([H100]))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "FLOPs a byte" in axes.get_xlabel() and axes.get_ylabel() == "FLOP/s"


def test_a_counted_point_is_hollow_and_on_the_roof_a_measured_one_filled_and_where_it_was():
    counted, measured = Point("counted", SMALL, 2.0), Point("measured", SMALL, 2.0, flops=5e10)
    *_, first, second = axes_of(Roofline([SMALL], [counted, measured])).get_lines()
    assert first.get_ydata()[0] == 2e11 and first.get_markerfacecolor() == "white"
    assert second.get_ydata()[0] == 5e10 and second.get_markerfacecolor() == style.PALETTE[0]


def test_points_lie_within_the_axes_however_far_out_they_are():
    points = [Point("far left", SMALL, 0.01, flops=1e6), Point("far right", H100, 1e5)]
    axes = axes_of(Roofline([A100], points))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for point in points:
        assert left < point.intensity < right and bottom < point.height <= top


def test_the_machine_of_a_point_is_drawn_too():
    picture = Roofline([H100], [Point("a", SMALL, 1.0)])
    assert legend_of(picture) == ["H100 SXM, ridge 295", "small, ridge 10"]


def test_points_are_labelled():
    texts = axes_of(Roofline([H100], [Point("prefill", H100, 500.0)])).texts
    assert [text.get_text() for text in texts] == ["prefill"]


def test_the_table_says_what_the_picture_shows():
    points = [Point("decode", SMALL, 1.0, flops=5e10), Point("prefill", SMALL, 50.0)]
    lines = Roofline([SMALL], points).table().splitlines()
    assert lines[1].split() == ["small", "1", "T", "100", "G", "10.0"]
    assert " ".join(lines[4].split()) == "decode small 1.00 50 G memory, 50% of the roof reached"
    assert " ".join(lines[5].split()) == "prefill small 50.00 1 T compute"


def test_the_alternative_text_names_machines_and_ridges():
    assert "H100 SXM (ridge 295), small (ridge 10), with 0 points" in Roofline([H100, SMALL]).alt()


def test_the_picture_can_be_stored():
    file = io.BytesIO()
    Roofline([H100], [Point("a", SMALL, 1.0)]).figure().savefig(file)
    assert file.getvalue().startswith(b"\x89PNG")
