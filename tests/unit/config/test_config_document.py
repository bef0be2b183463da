from pathlib import Path

from magnetar.config.document import proxy_page, settings_page, websocket_page

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_settings_page_is_what_the_table_says() -> None:
    assert PAGE.read_text("utf-8") == settings_page(), (
        "run: python -m magnetar.config.document docs/settings.md"
    )


def test_the_page_of_proxies_is_what_their_table_says() -> None:
    assert PAGE.with_name("settings-proxy.md").read_text("utf-8") == proxy_page()


def test_the_page_of_websockets_without_a_broker_is_what_their_table_says() -> None:
    assert PAGE.with_name("settings-websocket.md").read_text("utf-8") == websocket_page()
