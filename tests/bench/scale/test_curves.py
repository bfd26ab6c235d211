"""The pictures of docs/scaling.md, and that the page shows the results in the repository."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scale.curves import PICTURES, Picture, curves
from bench.scale.results import brokers_table, keep, load, write_pictures

_PICTURE = Picture("costs", "Costs", {"linear, s": 1.0, "flat, µs": 1e-6, "absent, s": 1.0})


def lines(svg: str) -> list[list[tuple[float, float]]]:
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in line.attrib["points"].split())]
        for line in found
    ]


def test_a_cost_that_does_not_grow_is_a_level_line_and_a_linear_one_rises() -> None:
    results = {10: {"linear, s": 1.0, "flat, µs": 1e6}, 1000: {"linear, s": 100.0, "flat, µs": 1e6}}
    level, rising = sorted(lines(curves(_PICTURE, results)), key=lambda line: -line[-1][1])
    assert level[0][1] == level[1][1]
    assert rising[1][1] < rising[0][1]
    assert rising[0] == level[0]


def test_names_of_lines_with_the_same_end_are_apart() -> None:
    svg = curves(_PICTURE, {10: {"linear, s": 1.0, "flat, µs": 1e6}})
    texts = {each.text: each for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
    assert abs(float(texts["linear"].attrib["y"]) - float(texts["flat"].attrib["y"])) >= 15


def test_a_file_keeps_the_sizes_that_were_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    assert load(path) == {}
    keep({10: {"load, s": 1.0}, 20: {"load, s": 2.0}}, path)
    keep({20: {"load, s": 3.0}}, path)
    assert load(path) == {10: {"load, s": 1.0}, 20: {"load, s": 3.0}}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_results_have_each_cost_of_a_picture(picture: Picture) -> None:
    for values in load().values():
        assert picture.costs.keys() <= values.keys()


def test_the_pictures_of_the_page_show_the_results(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    docs = Path(__file__).resolve().parents[3] / "docs"
    for drawn in tmp_path.iterdir():
        assert drawn.read_text() == (docs / "pictures" / drawn.name).read_text()
        assert f"(pictures/{drawn.name})" in (docs / "scaling.md").read_text()


def test_brokers_have_a_column_for_each_system_and_size(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    keep({10: {"load, s": 1.0}}, path)
    keep({20: {"idle, cores": 0.5}}, path, "penstock")
    keep({20: {"creation, s": 2.0}}, path, "kafka")
    assert load(path) == {10: {"load, s": 1.0}}
    assert brokers_table(path).splitlines() == [
        "",
        "| | Penstock, 20 | Apache Kafka, 20 |",
        "|---|--:|--:|",
        "| idle, cores | 0.5 |  |",
        "| creation, s |  | 2 |",
    ]
