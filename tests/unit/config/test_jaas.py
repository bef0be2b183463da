"""The file that Java logs in by."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.config.jaas import LoginModule, LoginRefused, login_sections

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


def sections(tmp_path: Path, text: str) -> object:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    return login_sections(str(path))


def test_sections_modules_and_options(tmp_path: Path) -> None:
    text = f"""
// of bookies
BookKeeper {{
  {DIGEST} required
    username="broker" /* who
    it is */
    password="a \\"b\\" {{;}} =";
}};
# of ZooKeeper
Client {{ {DIGEST} Required username=x; com.example.Other optional; }};
Nobody {{ }};
"""
    assert sections(tmp_path, text) == {
        "BookKeeper": [LoginModule(DIGEST, {"username": "broker", "password": 'a "b" {;} ='})],
        "Client": [LoginModule(DIGEST, {"username": "x"}), LoginModule("com.example.Other", {})],
        "Nobody": [],
    }
    assert sections(tmp_path, "") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A", "line 1: { is missing"),
        ("A {\n x; };", "line 2: required, requisite, sufficient or optional is missing"),
        ("A {\n x always; };", "one of required, requisite, sufficient, optional is missing after x"),
        ("A {\n x required\n y };", "line 3: = is missing"),
        ("A { x required y=z }", "; or an option is missing"),
        ("A { x required y=z; }", "; is missing"),
        ('A { x required y="z; };', "a quote is not closed"),
        ("{ };", "the name of a section is missing"),
    ],
)
def test_what_is_none_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(LoginRefused, match=why):
        sections(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoginRefused, match="nowhere cannot be read: No such file"):
        login_sections(str(tmp_path / "nowhere"))
