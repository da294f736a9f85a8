"""Certificates for tests, from an authority of our own, by the `openssl` command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

PASSWORD = "a password"


class Authority:
    """`ca` is its certificate; `issue` gives a key and a certificate that it signed. All files are PEM."""

    def __init__(self, tool: Callable[[str, str], str], folder: Path, name: str = "ca") -> None:
        self._openssl = tool("openssl", "the command of OpenSSL")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        uses = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
        about = ["-days", "30", "-subj", f"/CN={name}", *uses]
        self._run("req", "-x509", *self._new_key(self._key), "-out", self.ca, *about)

    def issue(self, name: str, *hosts: str) -> Identity:
        """With no hosts, the certificate is good for clients only."""
        identity = Identity(self._folder, name)
        request = self._folder / f"{name}.csr"
        self._run("req", *self._new_key(identity.key), "-out", request, "-subj", f"/CN={name}")
        extensions = self._folder / f"{name}.ext"
        names = ",".join(f"IP:{host}" if host[0].isdigit() else f"DNS:{host}" for host in hosts)
        extensions.write_text(f"subjectAltName={names}\n" if hosts else "extendedKeyUsage=clientAuth\n")
        self._run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", "30",
                  "-extfile", extensions, "-out", identity.chain)  # fmt: skip
        self._run("pkcs8", "-topk8", "-in", identity.key, "-out", identity.locked_key, "-v2", "aes-256-cbc",
                  "-passout", f"pass:{PASSWORD}")  # fmt: skip
        identity.store.write_text(identity.key.read_text() + identity.chain.read_text())
        return identity

    @staticmethod
    def _new_key(key: Path) -> list[str | Path]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key]

    def _run(self, *arguments: str | Path) -> None:
        done = subprocess.run([self._openssl, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Identity:
    """`store` has key and certificate in one file, as Kafka wants them; `locked_key` is encrypted with `PASSWORD`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.key = folder / f"{name}.key"
        self.locked_key = folder / f"{name}.locked"
        self.chain = folder / f"{name}.crt"
        self.store = folder / f"{name}.pem"
