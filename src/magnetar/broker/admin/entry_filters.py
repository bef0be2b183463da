"""Checks of entry filters in the policies of namespaces and topics."""

from __future__ import annotations

from typing import Any

from magnetar.broker.dispatch.filters import UnknownFilter
from magnetar.broker.policies.effective import filter_names
from magnetar.broker.service import BrokerService
from magnetar.errors import InvalidRequest


def check_filters(broker: BrokerService, field: str, value: Any) -> None:
    """Checks the value of a policy if its field is entry filters.

    :param field: of the policies of a namespace or a topic
    :param value: None removes it
    :raises InvalidRequest: the broker does not have one of the filters
    """
    if field != "entryFilters" or value is None:
        return
    try:
        broker.settings.topic.find_filters(filter_names(value))
    except UnknownFilter as error:
        raise InvalidRequest(str(error)) from error
