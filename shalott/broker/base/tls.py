"""TLS for listeners on real sockets, by the ssl module: what a node shows, and whom it believes.

The names are RabbitMQ's (ssl_options of its configuration).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from shalott.broker.base.errors import ConfigError

Certificate = dict[str, tuple[tuple[object, ...], ...]]  # as ssl.SSLSocket.getpeercert tells it
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags
LoginFrom = Literal["distinguished_name", "common_name", "subject_alternative_name"]
# Of attributes in a name (RFC 4514, section 3), by what OpenSSL calls them in full.
_SHORT: Mapping[str, str] = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``port``: beside that without TLS. With ``verify_peer`` a client's certificate must be one of
    ``cacertfile``'s; ``fail_if_no_peer_cert``: and it must have one.
    """

    port: int
    certfile: str
    keyfile: str
    cacertfile: str = ""
    verify: Literal["verify_none", "verify_peer"] = "verify_none"
    fail_if_no_peer_cert: bool = False

    def context(self) -> ssl.SSLContext:
        """Raises ConfigError if a file is not there, or not what it should be."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(self.certfile, self.keyfile)
            if self.cacertfile:
                context.load_verify_locations(self.cacertfile)
        except (OSError, ssl.SSLError) as error:
            text = f"the files of TLS on port {self.port} can't be used: {error}"
            raise ConfigError(text) from error
        if self.verify == "verify_peer":
            needed = self.fail_if_no_peer_cert
            context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
        return context


def session_of(
    cipher: tuple[str, str, int] | None, certificate: Certificate | None
) -> dict[str, object]:
    """As rabbitmqctl's columns have it; ``cipher`` as ssl.SSLSocket.cipher tells it."""
    if cipher is None:
        return {"ssl": False}
    suite, protocol, _ = cipher
    exchange, parts = "any", suite.removeprefix("TLS_").split("_")
    if not suite.startswith("TLS_"):  # before 1.3 the suite says how keys are exchanged
        first, second, *parts = suite.split("-")
        exchange = f"{first}_{second}".lower()
    told: dict[str, object] = {
        "ssl": True,
        "ssl_protocol": protocol.lower(),
        "ssl_key_exchange": exchange,
        "ssl_cipher": "_".join(parts[:-1]).lower(),
        "ssl_hash": parts[-1].lower(),
    }
    if certificate is not None:
        valid = (str(certificate.get(key, "")) for key in ("notBefore", "notAfter"))
        told["peer_cert_subject"] = login_name(certificate, "distinguished_name")
        issuer = {"subject": certificate.get("issuer", ())}
        told["peer_cert_issuer"] = login_name(issuer, "distinguished_name")
        told["peer_cert_validity"] = " - ".join(valid)
    return told


def expiry_of(path: str) -> str:
    """When the first certificate of a PEM file expires: ``YYYY-MM-DD HH:MM:SS`` in UTC; "" without
    a file. It is in the certificate's validity, before which come a version in some, a serial
    number, an algorithm and an issuer (RFC 5280, section 4.1).
    """
    if not path:
        return ""
    pem = Path(path).read_text()
    end = "-----END CERTIFICATE-----"
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") : pem.index(end) + len(end)])
    certificate = _elements(_elements(der)[0][1])
    fields = _elements(certificate[0][1])
    validity = fields[4 if fields[0][0] == _VERSION else 3][1]
    kind, not_after = _elements(validity)[1]
    text = not_after.decode()
    if kind == _UTC_TIME:
        text = f"{20 if text < '5' else 19}{text}"
    day, time = text[:8], text[8:14]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:]}"


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents of a sequence's elements (X.690, section 8)."""
    found, at = [], 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size > 127:
            count = size & 127
            size, at = int.from_bytes(der[at : at + count], "big"), at + count
        found.append((tag, der[at : at + size]))
        at += size
    return found


def login_name(certificate: Certificate, source: LoginFrom) -> str | None:
    """Whom it makes of its bearer (rabbit_ssl:peer_cert_auth_name). None: it has no such name."""
    if source == "subject_alternative_name":
        names = (name for name in certificate.get("subjectAltName", ()) if name[0] == "DNS")
        first = next(names, None)
        return None if first is None else str(first[1])
    subject = [
        (str(pair[0]), str(pair[1]))
        for rdn in certificate.get("subject", ())
        for pair in rdn
        if isinstance(pair, tuple)
    ]
    if source == "common_name":
        return ",".join(value for key, value in subject if key == "commonName") or None
    return ",".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in reversed(subject))


def _escaped(value: str) -> str:
    """RFC 4514, section 2.4."""
    text = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(text) > 1 else text
