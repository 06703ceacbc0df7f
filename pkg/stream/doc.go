// Package stream is how a job is written: a Go program that builds a dataflow
// of typed streams and hands it to Main.
//
//	func main() {
//		stream.Main("flights", func(env *stream.Env) error {
//			flights := stream.From(env, "flights", file.JSONLines[Flight](*input))
//			byOrigin := stream.KeyBy(flights, func(f Flight) string { return f.Origin })
//			delays := stream.Process(byOrigin, "delays", newDelayStats)
//			stream.To(delays, "out", file.ExactlyOnce[Delay](*output))
//			return nil
//		})
//	}
//
// Functions of this package only describe the job; nothing is read or written
// while it is built. They never panic and return no errors, so that a job
// reads as its dataflow: the first mistake is kept and returned by Build, and
// Main prints it.
//
// Sources, sinks and operators with state carry a UID that the user gives:
// state is found by it when a newer version of the program takes over. Other
// operators get a name made from their kind and number.
//
// User functions return errors; an error fails the job's attempt, and a
// restart goes back to the last checkpoint. Wrap an error in
// operator.Permanent if no restart can cure it.
//
// A record is passed by value. What it points to (slices, maps, pointers) may
// be shared with other operators, so a function changes only what it made itself.
//
// One operator runs in as many subtasks as its parallelism, several of which
// may be in one process. Functions given to Map, Filter, FlatMap, KeyBy and
// Reduce are shared by them and must not keep anything between records;
// Process and Connect take a constructor, and call it once for each subtask.
package stream
