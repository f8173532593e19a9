"""The official client, unchanged, in its own process and environment, against our server."""

import base64
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from sepp._generated import queue_pb2
from tests.e2e.peer_process import Counts, Peer
from tests.e2e.server_process import ServerProcess

PEER_TESTS = Path(__file__).parent / "peer"
PRINT_DESCRIPTOR = (
    "import base64; from sepp.v1 import queue_pb2;"
    "print(base64.b64encode(queue_pb2.DESCRIPTOR.serialized_pb).decode())"
)


def test_its_own_unit_tests_pass_here(peer: Peer) -> None:
    """The environment is sound: whatever fails beside this is between client and server."""
    counts = peer.run_tests("--ignore=tests/integration", "tests", cwd=peer.sdist)
    assert counts == Counts(passed=296, failed=0, skipped=0)


def test_its_own_integration_tests_pass(peer: Peer, server: ServerProcess) -> None:
    counts = peer.run_tests("tests/integration", cwd=peer.sdist, address=server.address)
    assert counts == Counts(passed=19, failed=0, skipped=0)


def test_its_quick_start_works_unchanged(peer: Peer, server: ServerProcess) -> None:
    options = ["-c", str(PEER_TESTS / "pytest.ini"), str(PEER_TESTS / "quick_start.py")]
    counts = peer.run_tests(*options, address=server.address)
    assert counts == Counts(passed=18, failed=0, skipped=0)


def test_its_wire_contract_is_ours(peer: Peer) -> None:
    theirs = base64.b64decode(peer.run("-c", PRINT_DESCRIPTOR))
    assert contract(theirs) == contract(queue_pb2.DESCRIPTOR.serialized_pb)


def contract(serialized: bytes) -> FileDescriptorProto:
    """Return a file descriptor in a form that leaves out order and spelled-out JSON names."""
    file = FileDescriptorProto.FromString(serialized)
    for message in file.message_type:
        drop_json_names(message)
    for kind in (file.message_type, file.enum_type, file.service):
        kind.sort(key=lambda entry: entry.name)
    return file


def drop_json_names(message: DescriptorProto) -> None:
    """Forget the JSON names: one compiler writes them out, the other leaves them to be derived."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        drop_json_names(nested)
