"""TLS for connections to brokers: a context from `ssl.*` options, and errors that say what to do.

Certificates are always checked; only the check of the host's name can be switched off, as with Kafka's own clients.
"""

from __future__ import annotations

import re
import ssl
from typing import Final, NamedTuple

from klamm.client.connection_options import ConnectionOptions
from klamm.client.errors import ConfigError, TlsFailed
from klamm.client.reaching import NO_TLS_HINT
from klamm.core.env import Files
from klamm.core.env.secret_file import secret_file

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_OLD_ENCRYPTION: Final = "Proc-Type"
_LINE_CHARS: Final = 64
_NO_PEM_HINT: Final = "Java's own stores have to be turned into PEM: keytool -importkeystore, openssl pkcs12 -nodes."


class Keys(NamedTuple):
    """What the options point to, each in PEM, with the name of the option for what may be wrong with it."""

    trusted: str | None
    trusted_option: str
    chain: str | None
    key: str | None
    key_option: str

    def __repr__(self) -> str:
        return f"Keys({self.trusted_option}, {self.key_option})"


def read_keys(files: Files, config: ConnectionOptions) -> Keys:
    """Reads files: call it off the loop. `ConfigError` names the option that is wrong."""
    location = config.ssl_truststore_location or config.ssl_ca_location
    trusted, trusted_option = config.ssl_truststore_certificates, "ssl.truststore.certificates"
    if trusted is None and location:
        trusted_option = "ssl.truststore.location" if config.ssl_truststore_location else "ssl.ca.location"
        trusted = _read(files, trusted_option, location)
    chain, key, key_option = config.ssl_keystore_certificate_chain, config.ssl_keystore_key, "ssl.keystore.key"
    if config.ssl_keystore_location:
        key_option = "ssl.keystore.location"
        chain = key = _read(files, key_option, config.ssl_keystore_location)
    elif config.ssl_certificate_location:
        key_option = "ssl.key.location"
        chain = _read(files, "ssl.certificate.location", config.ssl_certificate_location)
        key = _read(files, key_option, config.ssl_key_location)
    return Keys(trusted, trusted_option, chain, key, key_option)


def make_context(config: ConnectionOptions, keys: Keys) -> ssl.SSLContext:
    """Takes a while: call it off the loop. `ConfigError` names the option that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates are checked, and names of hosts
    context.check_hostname = config.ssl_endpoint_identification_algorithm.lower() == "https"
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols or _VERSIONS]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if config.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
        except ssl.SSLError:
            raise ConfigError("ssl.cipher.suites names no cipher that OpenSSL knows.") from None
    if keys.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, keys.trusted_option, keys.trusted)
    if keys.chain is not None and keys.key is not None:
        _identify(context, keys.key_option, keys.chain, keys.key, config.ssl_key_password)
    return context


def _trust(context: ssl.SSLContext, name: str, text: str) -> None:
    try:
        context.load_verify_locations(cadata=_blocks(name, text, "CERTIFICATE"))
    except ssl.SSLError as error:
        raise ConfigError(f"{name} has a certificate that cannot be read: {_said(error)}.") from None


def _identify(context: ssl.SSLContext, name: str, chain: str, key: str, key_password: str | None) -> None:
    """Use our own certificate."""
    both = _blocks(name, key, "PRIVATE KEY") + _blocks(name, chain, "CERTIFICATE")

    def password() -> str:
        if key_password is None:  # OpenSSL would ask at the terminal
            raise ConfigError(f"The private key of {name} is encrypted, and there is no ssl.key.password.")
        return key_password

    try:
        with secret_file(both.encode()) as path:
            context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        hint = "Is ssl.key.password right?" if key_password is not None else ""
        raise ConfigError(f"{name}: key and certificate cannot be used: {_said(error)}.", hint) from None


def _read(files: Files, name: str, path: str) -> str:
    try:
        return files.read(path).decode("ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def _blocks(name: str, text: str, kind: str) -> str:
    """The PEM blocks of this kind, each with lines of its own: a value in an environment variable is often one line."""
    found = []
    for label, body in _BLOCK.findall(text):
        if label.endswith(kind):
            packed = "".join(body.split())
            lines = [packed[i : i + _LINE_CHARS] for i in range(0, len(packed), _LINE_CHARS)]
            content = body.strip() if _OLD_ENCRYPTION in body else "\n".join(lines)
            found.append(f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n")
    if not found:
        raise ConfigError(f"{name} has no {kind.lower()} in PEM in it.", _NO_PEM_HINT)
    return "".join(found)


def failed(error: ssl.SSLError) -> TlsFailed:
    """What went wrong with a connection, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the broker's certificate is not accepted: {error.verify_message}"
        if "ostname" in error.verify_message or "IP address" in error.verify_message:
            return TlsFailed(text, "Connect by a name that is in the certificate, or set "
                                   "ssl.endpoint.identification.algorithm= to nothing.")  # fmt: skip
        return TlsFailed(text, "Name the authority that signed it in ssl.truststore.location (PEM).")
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return TlsFailed("it does not speak TLS", NO_TLS_HINT)
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
        return TlsFailed(f"the broker refused the connection: {_said(error)}",
                         "It may want a certificate of this client: ssl.keystore.location (PEM).")  # fmt: skip
    return TlsFailed(f"TLS failed: {_said(error)}")


def _said(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
