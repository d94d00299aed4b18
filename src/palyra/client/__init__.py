"""A typed client of a daemon, over HTTP or gRPC.

Owns: the two clients and the records they give. It knows nothing of the daemon but its interfaces.
Does not own: the command line's own client (cli), the daemon.

    async with HttpGatewayClient("http://127.0.0.1:7142", token) as client:
        run = await client.start_run(RunWish(text="What time is it?"))
        async for update in client.follow(run.id):
            print(update)
"""

from palyra.client.grpc_client import GrpcGatewayClient
from palyra.client.grpc_run import RunConversation
from palyra.client.http_client import HttpGatewayClient
from palyra.client.records import (
    LiveUpdate,
    RemoteApproval,
    RemoteCall,
    RemoteRun,
    RemoteSession,
    RemoteUsage,
    RequestFailed,
    ResultPage,
    RunUpdate,
    RunWish,
    TapeEvent,
)

__all__ = [
    "GrpcGatewayClient",
    "HttpGatewayClient",
    "LiveUpdate",
    "RemoteApproval",
    "RemoteCall",
    "RemoteRun",
    "RemoteSession",
    "RemoteUsage",
    "RequestFailed",
    "ResultPage",
    "RunConversation",
    "RunUpdate",
    "RunWish",
    "TapeEvent",
]
