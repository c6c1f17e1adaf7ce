from xml.etree import ElementTree

from corpus_platform.reports.charts import bar_chart, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def _found(svg: str, kind: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{SVG}{kind}")


def test_bars_are_as_high_as_their_values() -> None:
    _, *bars = _found(bar_chart([("2", 40.0), ("3", 10.0), ("4", 0.0)], "sizes"), "rect")
    assert [float(b.attrib["height"]) for b in bars] == [128.0, 32.0, 0.0]
    places = [float(b.attrib["y"]) + float(b.attrib["height"]) for b in bars]
    assert places == [164.0] * 3  # they stand on one line


def test_a_label_is_text_whatever_it_holds() -> None:
    svg = bar_chart([('<a&"\x00\u202e', 1.0)], "<title>\x1b")
    assert [t.text for t in _found(svg, "text")] == ["<title> ", '<a&"  ', "1"]


def test_a_chart_of_nothing_is_a_chart() -> None:
    assert len(_found(bar_chart([], "none"), "rect")) == 1


def test_a_chart_of_many_bars_stays_small() -> None:
    assert len(bar_chart([("label" * 100, 1e9)] * 10_000, "many")) < 8_000


def test_a_line_runs_from_the_lower_left_to_the_upper_right() -> None:
    (line,) = _found(line_chart([(0.0, 0.0), (1.0, 1.0)], [(0.8, "0.8")], "curve"), "polyline")
    assert line.attrib["points"] == "36.0,164.0 444.0,36.0"
