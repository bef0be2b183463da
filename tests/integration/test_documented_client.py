"""The programs on the pages of the client library print what the pages show, each page against a broker of
its own, with default settings unless it says which it requires."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority
from documented_programs import blocks_of, differing
from server import Server

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "client.md", *sorted((DOCS / "client").glob("*.md"))]
SETTINGS = {
    "transactions": {
        "transactionCoordinatorEnabled": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
    }
}
"""Those that a page requires, by its name."""
WITH_PROGRAMS = [page for page in PAGES if blocks_of(page)]


def test_most_pages_have_programs() -> None:
    assert len(WITH_PROGRAMS) >= 10
    assert sum(block.language == "python" for page in WITH_PROGRAMS for block in blocks_of(page)) >= 50


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.stem)
def test_programs_print_what_the_page_shows(
    start_server: Callable[..., Server], tmp_path: Path, page: Path
) -> None:
    # The page about connections shows TLS, for which the broker needs a certificate.
    authority = Authority(tmp_path)
    pair = authority.server()
    shutil.move(authority.trust, tmp_path / "ca.pem")
    server = start_server(
        brokerServicePortTls=0,
        tlsCertificateFilePath=pair.certificate,
        tlsKeyFilePath=pair.key,
        **SETTINGS.get(page.stem, {}),
    )
    addresses = {
        "localhost:6650": server.url.partition("://")[2],
        "localhost:6651": server.urls["pulsar+ssl"].partition("://")[2],
        "localhost:8080": server.http_url.partition("://")[2],
    }
    wrong = differing(page, tmp_path, addresses)
    assert not wrong, "\n".join(wrong)
