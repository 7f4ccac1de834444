"""TLS: the server's certificate is verified, by the system's authorities or those of SSL_CERT_FILE."""

import asyncio
import ipaddress
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.servers.fixtures import running
from tests.servers.home import give, new_home
from tests.servers.process import free_port
from tests.servers.redis import Redis
from windlass._stores.redis import RedisStore
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import all_tasks, enqueue_one

T = TypeVar("T")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself, with its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windlass test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = new_home(tmp_path)
    path, key_path = folder / "server.pem", folder / "server.key"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    for one in (path, key_path):
        give(one)
    return path


@pytest.fixture
def url(tmp_path: Path, certificate: Path) -> Iterator[str]:
    port = free_port()
    settings = {
        "tls-port": str(port),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(certificate.with_suffix(".key")),
        "tls-auth-clients": "no",
    }
    with running(lambda: Redis.start(tmp_path, program="redis", settings=settings)):
        yield f"rediss://127.0.0.1:{port}/0"


async def test_a_store_over_tls_works(url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    store = RedisStore.from_url(url)
    await store.open()

    task_id = await enqueue_one(store)
    other = await asyncio.to_thread(without_loop, enqueue_one(store))

    assert [task.id for task in await all_tasks(store)] == [task_id, other]
    await store.close()


def without_loop(call: Coroutine[Any, Any, T]) -> T:
    """Run a call that never waits for an event loop."""
    with pytest.raises(StopIteration) as end:
        call.send(None)
    result: T = end.value.value
    return result


async def test_a_certificate_that_nobody_vouches_for_is_refused(url: str) -> None:
    store = RedisStore.from_url(url)

    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        await store.open()
    await store.close()
