// Package watermark holds the two rules of event time, without threads and
// without a clock: Generator makes watermarks from the timestamps of records,
// and Valve combines those of all input channels of a subtask.
//
// A watermark w says that no record with a timestamp below w follows. So a
// window that ends at t (t itself not in it) is complete when the watermark
// reaches t. Times are milliseconds since the Unix epoch.
//
// Source: Flink's StatusWatermarkValve and BoundedOutOfOrdernessWatermarks,
// with its watermark one lower, and without their faults FLINK-40475 and
// FLINK-32828.
package watermark
