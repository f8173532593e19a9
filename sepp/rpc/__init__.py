"""gRPC on libnghttp2 for Trio: the server's front and the client channel. Knows nothing of queues.

Reading order: `grpc` (framing, statuses, deadlines), `http2` (the only module that touches ngh2),
`transport` (plain and TLS sockets), `timers`, `poller` (the one task), `outbound` and `connection`
(the server's side of one peer), `call`, `server`, `health`, `channel` (the client).
"""
