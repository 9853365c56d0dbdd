"""TLS and SASL, with a real client and by hand."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamlog import StreamLogError
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem
from streamlog.gateway import GatewaySettings, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.security import MECHANISMS, Users
from tests.gateway.wire_client import WireClient
from tests.support.certificate import make_certificate

SILENT = {"log_level": 0, "reconnect.backoff.ms": 500}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users"
    path.write_text("# who may connect\nalice:a secret, with: everything\nbob:b\n")
    path.chmod(0o600)
    return str(path)


@contextlib.contextmanager
def secured(root: Path, users: str) -> Iterator[str]:
    with serve(root, GatewaySettings(sasl_users=users)) as gateway:
        yield gateway.bootstrap_servers


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_authenticates_over_tls(
    root: Path, users: str, certificate: tuple[str, str], mechanism: str
) -> None:
    chain, key = certificate
    settings = GatewaySettings(sasl_users=users, tls_cert=chain, tls_key=key)
    with serve(root, settings) as gateway:
        admin = AdminClient(
            {
                "bootstrap.servers": gateway.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": mechanism,
                "sasl.username": "alice",
                "sasl.password": "a secret, with: everything",
                "ssl.ca.location": chain,
                **SILENT,
            }
        )
        assert len(admin.list_topics(timeout=20).brokers) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "b"), ("carol", "b")])
def test_wrong_credentials_are_refused(
    root: Path, users: str, mechanism: str, user: str, password: str
) -> None:
    with secured(root, users) as address:
        admin = AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": mechanism,
                "sasl.username": user,
                "sasl.password": password,
                **SILENT,
            }
        )
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)


def test_nothing_is_served_before_authentication(root: Path, users: str) -> None:
    with secured(root, users) as address:
        with WireClient(address) as client:
            assert client.call("ApiVersions", 3)["errorCode"] == 0
            client.send("Metadata", 12, topics=None)
            assert client.receive_frame()
            with pytest.raises(ConnectionError):
                client.receive_frame()
        with WireClient(address) as client:
            code = client.call("SaslHandshake", 1, mechanism="GSSAPI")["errorCode"]
            assert code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_the_answer_to_a_wrong_password_says_so_and_closes(root: Path, users: str) -> None:
    with secured(root, users) as address, WireClient(address) as client:
        assert client.call("SaslHandshake", 1, mechanism="PLAIN")["mechanisms"] == list(MECHANISMS)
        answer = client.call("SaslAuthenticate", 2, authBytes=b"\0alice\0wrong")
        assert answer["errorCode"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid username or password" in answer["errorMessage"]
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_the_exchange_of_old_clients_has_no_requests(root: Path, users: str) -> None:
    with secured(root, users) as address:
        with WireClient(address) as client:
            served = client.call("ApiVersions", 3)["apiKeys"]
            (handshake,) = [each for each in served if each["apiKey"] == 17]
            assert (handshake["minVersion"], handshake["maxVersion"]) == (0, 1)
            assert client.call("SaslHandshake", 0, mechanism="PLAIN")["errorCode"] == 0
            client.send_frame(b"\0bob\0b")
            assert client.receive_frame() == b""
            assert client.call("Metadata", 12, topics=None)["errorCode"] == 0
        with WireClient(address) as client:
            client.call("SaslHandshake", 0, mechanism="PLAIN")
            client.send_frame(b"\0bob\0wrong")
            with pytest.raises(ConnectionError):
                client.receive_frame()


@pytest.mark.parametrize("message", [b"", b"alice", b"\0alice", b"\0\xff\0b", b"bob\0alice\0b"])
def test_a_malformed_plain_message_is_refused(root: Path, users: str, message: bytes) -> None:
    with secured(root, users) as address, WireClient(address) as client:
        client.call("SaslHandshake", 1, mechanism="PLAIN")
        answer = client.call("SaslAuthenticate", 2, authBytes=message)
        assert answer["errorCode"] == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("text", "mode", "what"),
    [
        ("alice:b\n", 0o644, "other users may read the passwords"),
        ("alice\n", 0o600, "line 1 is not a user"),
        ("# nothing\n", 0o600, "no users"),
    ],
)
def test_a_bad_file_of_users_is_refused(tmp_path: Path, text: str, mode: int, what: str) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InvalidOptionError, match=what):
        Users.load(LocalFileSystem(), str(path))


def test_a_missing_certificate_stops_the_start(root: Path, tmp_path: Path) -> None:
    settings = GatewaySettings(tls_cert=str(tmp_path / "none.pem"))
    with (
        pytest.raises(StreamLogError, match="cannot use the TLS certificate"),
        serve(root, settings),
    ):
        pass


def test_a_missing_library_is_named(users: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlog.gateway.security.find_spec", lambda name: None)
    with pytest.raises(InvalidOptionError, match="needs the package scramp"):
        Users.load(LocalFileSystem(), users)
