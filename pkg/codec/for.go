package codec

// For derives the codec of T: T's own if it is a Marshaler, protobuf if it is
// a message, else one planned from its fields. Types that cannot be encoded
// without loss (functions, channels, interfaces, unexported fields, recursive
// types, …) are refused with an error that names the type and the field.
func For[T any]() (Codec[T], error) { panic("in progress") }
