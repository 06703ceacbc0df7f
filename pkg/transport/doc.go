// Package transport carries Weir's messages between processes: it alone (with
// the mains) knows gRPC. The rest of the program sees sessions, streams and
// calls as plain Go interfaces.
//
// The JobManager serves two services: sessions of TaskManagers and executors
// (CoordinationHandler) and the calls of flinkctl (ClientHandler). Executors
// serve a third, the exchange of records (ExchangeHandler). Serve starts any
// of them on a listener; DialJobManager and DialExecutor give the clients.
// Network is how addresses are reached: TCP between processes, InProcess for
// clusters inside one.
//
// A session is a bidirectional stream that lives as long as both sides want
// it. Send never blocks and may be called from several goroutines: messages
// wait in a bounded queue, and a peer that does not read until the queue is
// full loses the session. Recv blocks until a message or the end: io.EOF when
// the other side ended the session in order, ErrUnavailable when it broke.
//
// No message of a session is too large for it: above a megabyte it is encoded
// once and travels in pieces (weir.v1.Chunk), which the other end puts
// together, one message at a time and direction, up to SessionMessageBytesMax.
// SendAhead puts heartbeats between the pieces, so that neither side takes the
// other for lost meanwhile; all other messages keep their order.
//
// Errors cross the wire with a code (see Error), so that both sides may use
// errors.Is with ErrNotFound, ErrInvalid, ErrRefused, ErrStale and
// ErrUnavailable.
//
// Frames of records are written and read by hand, in the wire format of
// weir.v1.Frame, so that the records are not copied on the way out and at most
// once on the way in.
package transport
