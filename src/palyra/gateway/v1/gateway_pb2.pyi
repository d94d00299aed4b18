from palyra.gateway.v1 import approvals_pb2 as _approvals_pb2
from palyra.gateway.v1 import events_pb2 as _events_pb2
from palyra.gateway.v1 import runs_pb2 as _runs_pb2
from palyra.gateway.v1 import sessions_pb2 as _sessions_pb2
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor
