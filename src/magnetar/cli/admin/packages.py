"""Commands for packages: files that a broker stores by name and version."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.http import Sent
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call, piece
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.package_name import PackageName

_ROOT = "/admin/v3/packages"
_CHUNK = 256 * 1024
_DIGEST = re.compile(r'"([0-9a-f]{64})"')


def _name(call: Call) -> PackageName:
    """Parses the package name of the command.

    :raises InvalidName: the package name is not valid
    """
    return PackageName.parse(call["packageName"])


def _above(name: PackageName) -> str:
    return f"{_ROOT}/{name.type}/{piece(name.tenant)}/{piece(name.namespace)}/{piece(name.name)}"


def _place(name: PackageName) -> str:
    return f"{_above(name)}/{piece(name.version)}"


def _metadata(call: Call) -> dict[str, object]:
    """Returns the JSON object ``PackageMetadata`` of Pulsar's REST API, with the values of the options."""
    contact = {} if call["contact"] is None else {"contact": call["contact"]}
    return {"description": call["description"], **contact, "properties": call["properties"] or {}}


def _upload(call: Call) -> str:
    name, path = _name(call), Path(call["path"])
    try:
        size = path.stat().st_size
        with path.open("rb"):
            # Reports an unreadable file before the request.
            boundary = secrets.token_hex(16)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    head, tail = _around(boundary, json.dumps(_metadata(call)))

    def pieces() -> Iterator[bytes]:
        yield head
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                yield data
        yield tail

    sent = Sent(len(head) + size + len(tail), pieces)
    call.upload(_place(name), f"multipart/form-data; boundary={boundary}", sent)
    return f"The package '{name}' uploaded from path '{path}' successfully"


def _around(boundary: str, metadata: str) -> tuple[bytes, bytes]:
    """Returns the bytes of the multipart body that precede the file's contents, and the bytes that follow
    them.
    """
    part = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    head = (
        f'{part}metadata"\r\nContent-Type: application/json\r\n\r\n{metadata}\r\n'
        f'{part}file"; filename="package"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    return head.encode(), f"\r\n--{boundary}--\r\n".encode()


def _download(call: Call) -> str:
    """Downloads a package to a temporary file, then renames this file, so that the target is either complete
    or unchanged.
    """
    name, path = _name(call), Path(call["path"])
    part = path.with_name(f"{path.name}.part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as file:

            def take(data: bytes) -> None:
                digest.update(data)
                file.write(data)

            headers = call.download(_place(name), take)
        told = _DIGEST.fullmatch(headers.get("etag", ""))
        if told is not None and told[1] != digest.hexdigest():
            raise AdminError(
                f"The checksum of the downloaded package '{name}' differs from the checksum that the "
                "broker sent; download it again"
            )
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
    return f"The package '{name}' downloaded to path '{path}' successfully"


def _update(call: Call) -> str:
    name = _name(call)
    call.ask("PUT", f"{_place(name)}/metadata", None, _metadata(call))
    return f"The metadata of the package '{name}' updated successfully"


def _delete(call: Call) -> str:
    name = _name(call)
    call.ask("DELETE", _place(name))
    return f"The package '{name}' deleted successfully"


def _list(call: Call) -> object:
    return call.ask("GET", f"{_ROOT}/{call['type']}/{NamespaceName.parse(call.named)}")


ACTIONS: dict[str, Action] = {
    "packages get-metadata": lambda call: call.ask("GET", f"{_place(_name(call))}/metadata"),
    "packages update-metadata": _update,
    "packages upload": _upload,
    "packages download": _download,
    "packages list": _list,
    "packages list-versions": lambda call: call.ask("GET", _above(_name(call))),
    "packages delete": _delete,
}
