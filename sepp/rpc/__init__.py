"""gRPC on libnghttp2 for Trio: the server's front and the client channel. Knows nothing of queues.

Reading order: `grpc` (framing, statuses, deadlines), `http2` (the only module that touches ngh2),
`limits` (every bound), `transport` (plain and TLS sockets), `timers`, `poller` (the one task),
`watch`, `call`, `inbound`, `outbound` and `connection` (the server's side of one peer), `front`
(what all peers share), `listener`, `server`, `health`; then the client: `address`, `client_call`,
`channel`.
"""
