package transport

import (
	"time"

	"github.com/weirstream/weir/pkg/element"
)

// WireVersion is the version of everything that processes of one cluster say
// to each other. It changes with any message or meaning that the other side
// cannot ignore; processes of two versions refuse each other with both.
const WireVersion uint32 = 2

const (
	// streamWindowBytes is the flow control window of one stream. On an
	// exchange it has to hold the credit of all channels of the stream plus a
	// frame, so that a control element never waits behind records that the
	// consumer has not asked for: see ChannelCredit. The window is static
	// because gRPC's estimator would start at 64 KiB.
	streamWindowBytes = 8 << 20
	// connectionWindowBytes bounds what a peer may have on its way over one
	// connection that was not yet taken off the socket: eight full streams.
	connectionWindowBytes = 64 << 20

	// MessageBytesMax is the largest message that gRPC takes at once, of any
	// service and both ways. A record that is larger cannot be sent at all.
	// What flinkctl asks and is answered is bounded elsewhere, and smaller: a
	// submission by what the store of jobs takes, lists by their length.
	MessageBytesMax = 64 << 20
	// SessionMessageBytesMax is the largest message of a session. The largest
	// are acknowledgements and deployments: a handle takes about 100 bytes and
	// inline state at most 1 MiB an operator, so that ten million handles fit,
	// of one subtask or for one executor. What is larger would also not fit
	// into a _metadata object, which is bounded alike; both sides hold it in
	// memory, decoded and encoded.
	SessionMessageBytesMax = 1 << 30
	// chunkThresholdBytes is the size above which a message of a session
	// travels in pieces, and chunkBytes the size of those: small enough that a
	// heartbeat between two waits for no more than the stream's window, even
	// on a slow network, and large enough that a piece costs next to nothing.
	chunkThresholdBytes = 1 << 20
	chunkBytes          = 256 << 10
	// FrameBytesMax is the largest content of a frame: a message less what is
	// around it.
	FrameBytesMax = MessageBytesMax - 1024

	// keepaliveTime is the silence after which a connection is probed, and
	// keepaliveTimeout how long the answer may take: a peer that vanished
	// without a word is noticed within 15 s. gRPC allows clients no less than
	// 10 s. Heartbeats, which are faster, watch the sessions.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// keepaliveTimeMin is what servers allow: less than what clients do, or a
	// client whose timer is early would be disconnected for flooding.
	keepaliveTimeMin = 5 * time.Second

	// connectTimeout bounds one attempt to connect, and connectBackoffMax the
	// pause between two: a JobManager that comes back is found within a second.
	connectTimeout    = 5 * time.Second
	connectBackoffMax = time.Second

	// sessionQueueMax bounds the messages that wait for the peer of a session.
	// A job deploys with one message per executor and then sends a few per
	// checkpoint and subtask; so many waiting means that the peer hangs.
	sessionQueueMax = 1 << 16

	// ioBufferBytes is the size of the buffers in front of a socket, for each
	// direction: several frames go into one system call. With gRPC's 32 KiB an
	// exchange takes an eighth more processor time.
	ioBufferBytes = 128 << 10

	// artifactChunkBytes is the size of the pieces that artifacts travel in.
	artifactChunkBytes = 256 << 10
)

// frameOverheadBytes is how much of the window a frame of CutBytes takes
// beyond its records, and what a record at its end may add, generously.
const frameOverheadBytes = 64 << 10

// ChannelCredit is the credit in bytes for each of the channels that share
// the stream of one producing executor to one subtask: what is configured, but
// together no more than the stream's window less one frame of frameBytes. It
// is at least one byte, with which a producer sends one frame at a time.
func ChannelCredit(configured int64, channels int, frameBytes int64) int64 {
	available := streamWindowBytes - frameBytes - frameOverheadBytes
	return max(1, min(configured, available/int64(max(1, channels))))
}

// Frame is an element.Frame on the wire: with the number of the consumer's
// input channel.
type Frame struct {
	Channel uint32
	element.Frame
}
