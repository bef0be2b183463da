"""DIGEST-MD5, by the example of its rule and against servers that do not keep to it."""

from __future__ import annotations

import pytest

from magnetar.protocol.digest_md5 import MAX_CHALLENGE_BYTES, DigestClient, DigestRefused, NameAndPassword

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def client(password: str = "secret", username: str = "chris") -> DigestClient:
    return DigestClient(NameAndPassword(username, password), "imap/elwood.innosoft.com", "OA6MHXh6VqTrRk")


def test_the_example_of_the_rule() -> None:
    """RFC 2831, section 4."""
    chris = client()
    assert chris.respond(CHALLENGE).decode().split(",") == [
        "charset=utf-8",
        'username="chris"',
        'realm="elwood.innosoft.com"',
        'nonce="OA6MG9tEQGm2hh"',
        "nc=00000001",
        'cnonce="OA6MHXh6VqTrRk"',
        'digest-uri="imap/elwood.innosoft.com"',
        "response=d388dad90d4bbd760a152321f2143af7",
        "qop=auth",
    ]
    chris.verify(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")


@pytest.mark.parametrize("answer", [b"", b"rspauth=", b"rspauth=ea40f60335c427b5527b84dbabcdfff0", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_not_believed(answer: bytes) -> None:
    chris = client()
    chris.respond(CHALLENGE)
    with pytest.raises(DigestRefused):
        chris.verify(answer)


def test_nothing_proves_anything_before_it_was_asked_for() -> None:
    with pytest.raises(DigestRefused):
        client().verify(b"rspauth=")


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "not a valid DIGEST-MD5 challenge"),
        (b"algorithm=md5-sess", "not a valid DIGEST-MD5 challenge"),
        (b'nonce="x"', "not a valid DIGEST-MD5 challenge"),
        (b'nonce="x",algorithm=md5', "not a valid DIGEST-MD5 challenge"),
        (b'nonce="x",algorithm=md5-sess,qop="auth-conf"', "qop=auth-conf"),
        (b'nonce="x', "not a valid DIGEST-MD5 challenge"),
        (b"=,=", "not a valid DIGEST-MD5 challenge"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"a" * (MAX_CHALLENGE_BYTES + 1), f"at most {MAX_CHALLENGE_BYTES} are accepted"),
    ],
)
def test_what_is_no_challenge_is_refused(challenge: bytes, why: str) -> None:
    with pytest.raises(DigestRefused, match=why):
        client().respond(challenge)


def test_names_are_quoted_and_passwords_are_not_told() -> None:
    said = client(username='a"b\\c').respond(CHALLENGE).decode()
    assert 'username="a\\"b\\\\c"' in said
    assert "secret" not in said
    assert "secret" not in repr(NameAndPassword("chris", "secret"))


def test_letters_beyond_latin_1_are_hashed_as_utf_8() -> None:
    assert client("pässword").respond(CHALLENGE) != client("pässword☃").respond(CHALLENGE)
