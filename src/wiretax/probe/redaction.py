"""Text without names of people and places. One redactor a document, so that equal things get equal placeholders."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import Any, TypeVar

Document = TypeVar("Document")

_UUID = re.compile(r"\b(GPU-|MIG-)?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\b")
_GPU_PREFIX = re.compile(r"\b(GPU|MIG)-([0-9a-fA-F]{4,})((?:-[0-9a-fA-F]+)*)")
_IPV4 = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.]*\.\d|\w)")
_IPV6 = re.compile(r"(?<![\w:])((?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4})(?![\w:])")
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b")
_PATH = re.compile(r"(?<![\w.:/~-])~?(/[^\s:;,'\"<>|()\[\]{}=]+)")
_DOMAIN = re.compile(
    r"(?<!\w)(?<!\w[.-])(?:\w(?:[\w-]*\w)?\.)+"  # tried once for each name, however long it is
    r"(?:com|net|org|edu|gov|io|ai|dev|cloud|local|internal|lan|corp|intra|home|de|fr|uk|eu|jp|cn|in|ru|ch|nl|us|ca|au|kr)\b",
    re.IGNORECASE,
)
_USER_AT_HOST = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w.-]+")
_SERIAL = re.compile(r"(?i)\b(serial(?: number)?\s*[:=]?\s*)([A-Z0-9-]{6,})")
_HOST_AND_PORT = re.compile(r"(?<![\w.:/-])([a-zA-Z][\w-]*(?:\.[\w-]+)*)(:\d{2,5})(?!\S)")
_SYSTEM_FOLDERS = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "var")
_PLAIN_NAMES = frozenset({"localhost", "host", "vm", "root", "linux", "none"})
_HARMLESS = frozenset({"pci_bus_id", "remote_pci_bus_id", "address", "cloud", "container", "scheduler", "virtual_machine", "origin_note"})
"""Fields that may look like an address or a host ("vast.ai", "0000:e1:00.0") and are none."""
_ADDRESS_VARIABLES = ("NCCL_COMM_ID", "NCCL_RAS_ADDR", "MASTER_ADDR")


class Redactor:
    """Replaces what identifies, consistently within one document."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._networks: dict[Any, int] = {}
        self._addresses: dict[Any, str] = {}

    def name(self, word: str, placeholder: str) -> None:
        """From now on ``word`` (a host's or user's name), and its part before the first dot, become ``placeholder``."""
        for form in (word, word.split(".", maxsplit=1)[0]):
            # A host named "vm" or "host" identifies nobody, and replacing it would break ordinary words.
            if len(form) > 2 and form.lower() not in _PLAIN_NAMES:
                self._names[form] = placeholder

    def uuid(self, uuid: str, placeholder: str) -> None:
        """From now on this UUID, also a beginning of it, becomes ``placeholder``."""
        self._uuids[uuid.lower()] = placeholder

    def interface(self, text: str) -> str:
        """An address with prefix length, moved to a private range; equal networks stay equal, loopback stays."""
        try:
            found = ipaddress.ip_interface(text.strip())
        except ValueError:
            return self.text(text)
        if found.ip.is_loopback or found.ip.is_unspecified:
            return text
        if found.ip not in self._addresses:
            length = max(found.network.prefixlen, 8)
            bits = found.max_prefixlen - length
            number = self._networks.setdefault((found.version, found.network), len(self._networks) + 1)
            host = 1 + sum(1 for other in self._addresses if other.version == found.version and other in found.network)
            base = 10 << 24 if found.version == 4 else 0xFD << 120
            if found.ip.is_link_local:  # NCCL passes these over, so they stay what they are
                base, number = int(found.network.network_address), 0
            address = ipaddress.ip_address((base + (number << bits) + host % max(1 << bits, 1)) % (1 << found.max_prefixlen))
            self._addresses[found.ip] = str(address)
        return f"{self._addresses[found.ip]}/{found.network.prefixlen}"

    def text(self, text: str) -> str:
        """A sentence or a value with everything identifying replaced."""
        text = _PATH.sub(self._path, text)  # before the names: a path is replaced as a whole
        for word, placeholder in sorted(self._names.items(), key=lambda item: -len(item[0])):
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", placeholder, text)
        text = _UUID.sub(self._uuid, text)
        text = _GPU_PREFIX.sub(self._uuid_prefix, text)
        text = _MAC.sub("<mac>", text)
        text = _IPV4.sub(self._address, text)
        text = _IPV6.sub(self._address, text)
        text = _USER_AT_HOST.sub("<user>@<host>", text)
        text = _DOMAIN.sub("<host>", text)
        return _SERIAL.sub(r"\1<serial>", text)

    def setting(self, name: str, value: str) -> str:
        """The value of an environment variable; those that hold an address may hold a bare host name."""
        if name.rpartition(":")[2] in _ADDRESS_VARIABLES:
            value = _HOST_AND_PORT.sub(r"<host>\2", value)
            if re.fullmatch(r"[a-zA-Z][\w.-]*", value):
                return "<host>"
        return self.text(value)

    def document(self, value: Document) -> Document:
        """A copy of any dataclass, tuple or mapping of the model with every text in it redacted, keys included."""
        result: Any = value
        if isinstance(value, str):
            result = self.text(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {field.name: self._member(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)}
            result = dataclasses.replace(value, **changes)
        elif isinstance(value, tuple):
            result = tuple(self.document(inner) for inner in value)
        elif isinstance(value, dict):
            result = {
                self.text(key): self.setting(key, inner) if isinstance(inner, str) else self.document(inner) for key, inner in value.items()
            }
        return result  # type: ignore[no-any-return]

    def _member(self, name: str, value: Any) -> Any:
        # The name of a host is wholly private, however ordinary it looks; a PCI address is not a network address.
        if name == "hostname" and value is not None:
            return "host"
        return value if name in _HARMLESS else self.document(value)

    def _uuid(self, match: re.Match[str]) -> str:
        whole = match.group(0)
        known = self._uuids.get(whole.lower())
        if known is None:
            kind = (match.group(1) or "UUID-").rstrip("-")
            taken = sum(1 for placeholder in self._uuids.values() if placeholder.startswith(f"{kind}-"))
            known = self._uuids[whole.lower()] = f"{kind}-{'x' if kind == 'GPU' else ''}{taken}"
        return known

    def _uuid_prefix(self, match: re.Match[str]) -> str:
        """A beginning of a UUID, which CUDA accepts in place of the whole."""
        whole = match.group(0).lower()
        owners = {placeholder for uuid, placeholder in self._uuids.items() if uuid.startswith(whole)}
        if match.group(0) in self._uuids.values():
            return match.group(0)
        return owners.pop() if len(owners) == 1 else f"{match.group(1)}-<uuid>"

    def _address(self, match: re.Match[str]) -> str:
        text = match.group(1)
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return match.group(0)
        if address.is_loopback or address.is_unspecified:
            return match.group(0)
        if address not in self._addresses:
            return self.interface(f"{address}/{24 if address.version == 4 else 64}").partition("/")[0]
        return self._addresses[address]

    def _path(self, match: re.Match[str]) -> str:
        """A private folder becomes a placeholder; the file's own name stays unless it holds a user's name."""
        path = match.group(1)
        parts = [part for part in path.split("/") if part]
        redacted_already = re.search(r"<path(-\d+)?>$", match.string[: match.start()])
        system = bool(parts) and parts[0] in _SYSTEM_FOLDERS and parts[:2] != ["run", "user"]
        if not parts or redacted_already or system or match.group(0).startswith("~"):
            return match.group(0)
        folder, file = "/".join(parts[:-1]), parts[-1]
        if folder in ("", "home", "Users", "run/user"):
            folder, file = path, ""
        elif any(name.lower() in file.lower() for name in self._names):
            file = "<file>" + "".join(re.findall(r"\.\w+$", file))
        if folder not in self._paths:
            self._paths[folder] = "<path>" if not self._paths else f"<path-{len(self._paths) + 1}>"
        return f"{self._paths[folder]}/{file}".rstrip("/")
