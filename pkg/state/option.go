package state

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/codec/avro"
)

// Option changes how a state is kept.
type Option func(*settings)

type settings struct {
	codec     any // codec.Codec of the values
	codecType reflect.Type
	ttl       *ttlSettings
}

type ttlSettings struct {
	after time.Duration
	modes TTLMode
}

// WithCodec stores the values with c instead of the codec that avro.For derives.
// A codec.Migrating also reads what other codecs and schemas have stored.
func WithCodec[V any](c codec.Codec[V]) Option {
	return func(s *settings) { s.codec, s.codecType = c, reflect.TypeFor[V]() }
}

// TTLMode changes what WithTTL means; several are joined by |.
type TTLMode uint8

const (
	// OnReadAndWrite makes reading a value put off its end, as writing does.
	OnReadAndWrite TTLMode = 1 << iota
	// NotWhileDown leaves the time between a snapshot and its restore out: a
	// job that was down for longer than the time-to-live finds its state as
	// it was. It takes effect with the first snapshot that is taken with it.
	NotWhileDown
)

// WithTTL gives the values of a state a time-to-live: after d without a write
// a value does not exist any more. It is never returned, is not in snapshots,
// and its memory is freed while others are used. In a List every element, in
// a Map every user key expires on its own.
//
// Time is the host's clock at each access. Should that clock go back, time
// stands still until it has caught up: nothing that has expired comes back,
// and nothing expires early. Without NotWhileDown, time goes on
// while the job is down.
//
// A state may get, change and lose its time-to-live between versions of the
// program: a value that was stored without a time counts as written at the
// restore.
func WithTTL(d time.Duration, modes ...TTLMode) Option {
	return func(s *settings) {
		s.ttl = &ttlSettings{after: d}
		for _, m := range modes {
			s.ttl.modes |= m
		}
	}
}

// settle is what options say, checked, with a codec for values of type V.
func settle[V any](options []Option) (*settings, codec.Codec[V], error) {
	s := &settings{}
	for _, o := range options {
		o(s)
	}
	if s.ttl != nil && s.ttl.after < time.Millisecond {
		return nil, nil, fmt.Errorf("time-to-live of %s: give a millisecond or more", s.ttl.after)
	}
	if s.codec == nil {
		c, err := avro.For[V]()
		return s, c, err
	}
	c, ok := s.codec.(codec.Codec[V])
	if !ok {
		return nil, nil, fmt.Errorf("WithCodec is for %s, but the state's values are %s", s.codecType, reflect.TypeFor[V]())
	}
	return s, c, nil
}

// errNoClock is returned for a time-to-live without a clock.
var errNoClock = errors.New("a state with time-to-live needs a clock, and this runtime gives none")
