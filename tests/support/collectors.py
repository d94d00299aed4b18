"""A stand-in for a collector of OpenTelemetry: takes OTLP over HTTP on this machine, and keeps the spans.

Owns: the socket and reading protobuf bodies. Not: any claim about the spans.
"""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def service_names(self) -> set[str]:
        attributes = [
            attribute
            for request in self.requests
            for resource in request.resource_spans
            for attribute in resource.resource.attributes
        ]
        return {each.value.string_value for each in attributes if each.key == "service.name"}


@contextmanager
def collecting() -> Iterator[Collector]:
    taken: list[ExportTraceServiceRequest] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        collector = Collector(server.server_port)
        collector.requests = taken
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def attributes_of(span: Any) -> dict[str, object]:
    """Attributes as plain values."""
    return {each.key: _plain(each.value) for each in span.attributes}


def _plain(value: Any) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    found: object = getattr(value, kind)
    return found
