"""Configuration, progress and reports of pipelines; without Spark."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest

from magnetar.cli import magnetar
from magnetar.spark.pipelines.configuration import Cluster, ConfigurationRefused, load_document
from magnetar.spark.pipelines.report import Plot, Report, Series, Table, svg_of
from magnetar.spark.pipelines.work import ProgressBar


@dataclass(frozen=True)
class Section:
    topic: str
    path: Path = Path("x")
    rate: float = 0.0
    count: int = 1
    loud: bool = False
    kind: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("count must be 1 at least")


def _load(folder: Path, text: str, name: str = "c.toml") -> tuple[Section | None, list[str]]:
    path = folder / name
    path.write_text(text)
    try:
        document = load_document(path)
        document.section("cluster", Cluster)
        found = document.section("own", Section)
        document.check()
    except ConfigurationRefused as error:
        return None, error.problems
    return found, []


def test_all_kinds_of_values_are_read(tmp_path: Path) -> None:
    text = """
        [cluster]
        service_url = "pulsar://h:1"
        [own]
        topic = "t"
        path = "data"
        rate = 5
        count = 2
        loud = true
        kind = "b"
        names = ["x", "y"]
        options = {a = "1"}
    """
    wanted = Section("t", tmp_path.resolve() / "data", 5.0, 2, True, "b", ("x", "y"), {"a": "1"})
    assert _load(tmp_path, text) == (wanted, [])
    assert _load(tmp_path, '{"own": {"topic": "t"}}', "c.json") == (Section("t"), [])


def test_every_problem_is_told_by_name(tmp_path: Path) -> None:
    text = """
        other = 1
        [cluster]
        url = "x"
        [own]
        path = "s3://bucket"
        rate = "fast"
        count = true
        loud = 1
        kind = "c"
        names = "x"
        options = {a = 1}
    """
    _, problems = _load(tmp_path, text)
    wanted = [
        "cluster.url: unknown key; use service_url, admin_url, auth_plugin, auth_params, "
        "tls_trust_certs, tls_hostname_verification",
        "own.topic is missing",
        "own.path: must be a directory that all processes of Spark can access, not 's3://bucket'",
        "own.rate: must be a number, not 'fast'",
        "own.count: must be a whole number, not True",
        "own.loud: must be true or false, not 1",
        "own.kind: must be one of a, b, not 'c'",
        "own.names: must be a list of strings, not 'x'",
        "own.options: must be a table of strings, not {'a': 1}",
        "other: unknown section; use cluster, own",
    ]
    assert problems == wanted
    assert _load(tmp_path, '[own]\ntopic = "t"\ncount = 0')[1] == ["own: count must be 1 at least"]
    assert _load(tmp_path, "own = 5")[1] == ["own must be a section, not 5"]
    assert "c.toml" in _load(tmp_path, "[own")[1][0]
    assert ".toml or .json" in _load(tmp_path, "", "c.yaml")[1][0]


@pytest.mark.parametrize(
    "plot",
    [
        Plot("empty", [], "y"),
        Plot("one <point>", [Series("a&b", [(1.0, 5.0)])], "y", "x"),
        Plot("zeros", [Series("", [(0.0, 0.0), (1.0, 0.0)])], "y"),
        Plot("times", [Series("t", [(1.7e9, 1e12), (1.7e9 + 9e5, float("nan"))])], "y", times=True),
        Plot("bars", [Series("s", [(float(i), float(i)) for i in range(90)])], "y", labels=["l"] * 90),
    ],
)
def test_plots_are_whole_and_stay_within_their_frame(plot: Plot) -> None:
    tree = ElementTree.fromstring(svg_of(plot))
    width, height = (float(each) for each in tree.attrib["viewBox"].split()[2:])
    shapes = list(tree)
    assert len(shapes) > 6
    for shape in shapes:
        for name, most in (("x", width), ("y", height), ("cx", width), ("cy", height)):
            assert -1 <= float(shape.attrib.get(name, 0)) <= most
        for pair in shape.attrib.get("points", "").split():
            x, y = (float(each) for each in pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def texts_of(plot: Plot) -> list[str]:
    return [text for each in ElementTree.fromstring(svg_of(plot)).iter() if (text := each.text)]


def test_axes_have_round_numbers_and_times_and_say_what_they_are() -> None:
    seconds = texts_of(Plot("P", [Series("one", [(0.0, 1.0), (4.435, 2.0)])], "y", "seconds"))
    assert seconds[6:] == ["0", "1", "2", "3", "4", "y", "seconds"]
    day = 1_700_006_400.0
    times = [Series("", [(day + 60.0, 1.0), (day + 80_000.0, 2.0)])]
    found = texts_of(Plot("P", times, "y", "event time", times=True))
    assert found[6:] == ["11-15 06:00", "11-15 12:00", "11-15 18:00", "y", "event time (UTC)"]
    minutes = [Series("", [(day, 1.0), (day + 700.0, 2.0)])]
    assert texts_of(Plot("P", minutes, "y", times=True))[6:9] == ["00:00", "00:05", "00:10"]


def test_a_forecast_has_the_colour_of_what_it_continues_and_one_series_no_legend() -> None:
    points = [(0.0, 1.0), (1.0, 2.0)]
    plot = Plot(
        "P", [Series("a", points), Series("a, forecast", points, dashed=True), Series("b", points)], "y"
    )
    lines = [each for each in ElementTree.fromstring(svg_of(plot)) if each.tag.endswith("polyline")]
    colours = [each.attrib["stroke"] for each in lines]
    assert colours[0] == colours[1] != colours[2]
    assert [text for text in texts_of(plot) if text[0] in "ab"] == [
        "a",
        "a",
        "a, forecast",
        "a, forecast",
        "b",
        "b",
    ]
    assert "a" not in texts_of(Plot("P", [Series("a", points)], "y"))


def test_a_few_bars_say_what_they_are_exactly_and_many_do_not() -> None:
    counts = [Series("", [(0.0, 1_000_000.0), (1.0, 1_000_001.0), (2.0, 1.0)])]
    few = texts_of(Plot("P", counts, "messages", labels=["left", "right", "too many"]))
    # Above the bar, and where the pointer rests on it.
    assert [few.count(text) for text in ("1,000,000", "1,000,001", "1")] == [2, 2, 2]
    many = [Series("", [(float(each), 1_234_567.0) for each in range(9)])]
    assert texts_of(Plot("P", many, "messages", labels=["l"] * 9)).count("1,234,567") == 9


def test_columns_of_numbers_are_aligned_and_long_names_may_break() -> None:
    report = Report("p", {})
    report.tables.append(Table("T", ("name", "bytes"), [("persistent://public/default/orders", 7)]))
    page = report.to_html()
    assert '<th>name</th><th class="n">bytes</th>' in page
    assert "persistent:/<wbr>/<wbr>public/<wbr>default/<wbr>orders" in page


def test_a_report_tells_all_but_secrets(tmp_path: Path) -> None:
    report = Report("archive", {"cluster": {"token": "hidden", "service_url": "pulsar://h"}})
    report.figures["messages"] = 1234567
    report.tables.append(Table("T<1>", ("a", "b"), [("<x>", 1.5)]))
    report.plots.append(Plot("P", [Series("", [(0.0, 1.0), (1.0, 2.0)])], "y"))
    report.error = "went <wrong>"
    page = report.write(tmp_path / "reports")
    text = page.read_text()
    for wanted in (
        "1,234,567",
        "T&lt;1&gt;",
        "&lt;x&gt;",
        "went &lt;wrong&gt;",
        "<svg",
        "pulsar://h",
        "failed",
    ):
        assert wanted in text
    document = json.loads(page.with_suffix(".json").read_text())
    assert document["figures"] == {"messages": 1234567}
    assert document["configuration"]["cluster"] == {"token": "***", "service_url": "pulsar://h"}
    assert "hidden" not in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_terminals_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for stream in (_Terminal(), io.StringIO()):
        progress = ProgressBar("p", stream)
        progress.step("reading")
        now[0] += 20
        progress.update(500, 1000)
        progress.update(501, 1000)
        progress.finish("done")
        text = stream.getvalue()
        assert "[###############...............] 50 % 500 of 1,000 messages, 25/s" in text
        assert "501" not in text
        assert ("\r" in text) == stream.isatty()
        assert text.endswith("p: done\n")
    silent = io.StringIO()
    ProgressBar("p", silent, quiet=True).finish("done")
    assert silent.getvalue() == ""


def test_the_command_knows_its_pipelines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert magnetar.main(["pipeline", "list"]) == 0
    assert "mirror-verify" in capsys.readouterr().out
    assert magnetar.main(["pipeline", "nothing", "--config", "x"]) == 2
    assert "unknown pipeline 'nothing'" in capsys.readouterr().err
    assert magnetar.main(["pipeline", "archive"]) == 2
    path = tmp_path / "c.toml"
    path.write_text("[archive]\npath = 5\n[elsewhere]\n")
    assert magnetar.main(["pipeline", "archive", "--config", str(path)]) == 2
    told = capsys.readouterr().err
    for wanted in ("archive.topic is missing", "archive.path", "elsewhere: unknown section"):
        assert wanted in told
